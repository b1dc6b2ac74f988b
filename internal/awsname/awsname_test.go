package awsname_test

import (
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/awsname"
)

func TestRegions(t *testing.T) {
	for _, region := range []string{"us-east-1", "eu-central-2", "us-gov-west-1", "eusc-de-east-1", "us-isof-south-1", "ap-southeast-10"} {
		if !awsname.ValidRegion(region) {
			t.Errorf("%q is refused", region)
		}
	}
	for _, region := range []string{"", "-", "us", "us-1", "us-east", "us-east-", "us-east-123", "US-EAST-1", "us-east-1.evil", "us--east-1",
		"-us-east-1", "us-east--1", "us-east-1/", "us_east_1", "us-east-1a", "us-east-a1", "us-e1st-1", strings.Repeat("a", 30) + "-b-1"} {
		if awsname.ValidRegion(region) {
			t.Errorf("%q is accepted", region)
		}
	}
}

func TestAccounts(t *testing.T) {
	for account, want := range map[string]bool{"123456789012": true, "": false, "12345678901": false, "1234567890123": false, "12345678901x": false, "１２３４": false} {
		if got := awsname.ValidAccount(account); got != want {
			t.Errorf("%q: %t", account, got)
		}
	}
}

const eksCluster = "arn:aws:eks:eu-central-1:123456789012:cluster/prod"

func TestParseClusterARN(t *testing.T) {
	for arn, want := range map[string]awsname.ClusterARN{
		eksCluster: {Partition: "aws", Region: "eu-central-1", Account: "123456789012", Name: "prod"},
		"arn:aws-cn:eks:cn-north-1:123456789012:cluster/A_b-1": {Partition: "aws-cn", Region: "cn-north-1", Account: "123456789012", Name: "A_b-1"},
	} {
		if got, err := awsname.ParseClusterARN(arn); err != nil || got != want || got.String() != arn {
			t.Errorf("%q: %+v, %v", arn, got, err)
		}
	}
	for _, arn := range []string{"", "prod", " " + eksCluster, eksCluster + " ", eksCluster + "/x", eksCluster + "\n", eksCluster + ":x", "arn:aws:eks:eu-central-1:123456789012:cluster/",
		"arn:aws:eks:eu-central-1:123456789012:cluster/-a", "arn:aws:eks:eu-central-1:123456789012:cluster/ä", "arn:aws:eks:eu-central-1::cluster/prod",
		"arn:aws:eks::123456789012:cluster/prod", "arn:aws:eks:eu-central-1.evil.example/:123456789012:cluster/prod", "arn:aws:iam::123456789012:role/prod",
		"arn:evil:eks:eu-central-1:123456789012:cluster/prod", "arn:aws:eks:us-gov-west-1:123456789012:cluster/prod",
		"arn:aws:eks:eu-central-1:123456789012:cluster/" + strings.Repeat("a", 101)} {
		if got, err := awsname.ParseClusterARN(arn); err == nil {
			t.Errorf("%q was accepted: %+v", arn, got)
		}
	}
}

func FuzzClusterARN(f *testing.F) {
	f.Add(eksCluster)
	f.Add("arn:aws-us-gov:eks:us-gov-west-1:123456789012:cluster/a_b")
	f.Fuzz(func(t *testing.T, s string) {
		a, err := awsname.ParseClusterARN(s)
		if err != nil {
			return
		}
		partition, ok := awsname.PartitionOf(a.Region)
		if a.String() != s || !ok || partition.Name != a.Partition || !awsname.ValidAccount(a.Account) || !awsname.ValidClusterName(a.Name) {
			t.Errorf("%q was accepted as %+v", s, a)
		}
	})
}
