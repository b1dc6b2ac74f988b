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
