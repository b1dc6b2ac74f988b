package awsirsa_test

import (
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/awsirsa"
)

func mustParse(t testing.TB, arn string) awsirsa.ClusterARN {
	t.Helper()
	parsed, err := awsirsa.ParseClusterARN(arn)
	regtest.Must(t, err)
	return parsed
}

func pair(t testing.TB) (hub, managed awsirsa.ClusterARN) {
	return mustParse(t, hubARN), mustParse(t, managedARN)
}

// The values of the proposal.
func TestIDIsThatOfTheProposal(t *testing.T) {
	hub := awsirsa.ClusterARN{Partition: "aws", Account: "hubaccount1", Name: "hubcluster1"}
	managed := awsirsa.ClusterARN{Partition: "aws", Account: "managedaccount1", Name: "managedcluster1"}
	const id = "79e99112993014816615711cbd35a9bc"
	for got, want := range map[string]string{
		awsirsa.RoleSuffix(hub, managed):      id,
		awsirsa.GrantedRoleName(hub, managed): "ocm-hub-" + id,
		awsirsa.AgentRoleName(hub, managed):   "ocm-managed-cluster-" + id,
		awsirsa.GrantedRoleARN(hub, managed):  "arn:aws:iam::hubaccount1:role/ocm-hub-" + id,
		awsirsa.AgentRoleARN(hub, managed):    "arn:aws:iam::managedaccount1:role/ocm-managed-cluster-" + id,
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestParseClusterARNKnowsEveryPartition(t *testing.T) {
	for _, arn := range []string{
		"arn:aws:eks:us-east-1:123456789012:cluster/a",
		"arn:aws-cn:eks:cn-north-1:123456789012:cluster/a",
		"arn:aws-us-gov:eks:us-gov-west-1:123456789012:cluster/a",
		"arn:aws-iso:eks:us-iso-east-1:123456789012:cluster/a",
		"arn:aws-iso-b:eks:us-isob-east-1:123456789012:cluster/a",
		"arn:aws-iso-e:eks:eu-isoe-west-1:123456789012:cluster/a",
		"arn:aws-iso-f:eks:us-isof-south-1:123456789012:cluster/a",
		"arn:aws-eusc:eks:eusc-de-east-1:123456789012:cluster/a",
		"arn:aws:eks:us-east-1:123456789012:cluster/" + strings.Repeat("Z", 98) + "_-",
	} {
		t.Run(arn, func(t *testing.T) {
			if got := mustParse(t, arn).String(); got != arn {
				t.Errorf("got %q", got)
			}
		})
	}
}

// malformed are claims that a hostile cluster may make.
var malformed = map[string]string{
	"empty":                "",
	"no ARN":               "foo",
	"missing name":         "arn:aws:eks:us-east-1:123456789012:cluster/",
	"missing resource":     "arn:aws:eks:us-east-1:123456789012",
	"extra slash":          "arn:aws:eks:us-east-1:123456789012:cluster/a/b",
	"trailing slash":       "arn:aws:eks:us-east-1:123456789012:cluster/a/",
	"other service":        "arn:aws:iam:us-east-1:123456789012:cluster/a",
	"other resource":       "arn:aws:eks:us-east-1:123456789012:nodegroup/a",
	"unknown partition":    "arn:evil:eks:us-east-1:123456789012:cluster/a",
	"region elsewhere":     "arn:aws:eks:cn-north-1:123456789012:cluster/a",
	"account of letters":   "arn:aws:eks:us-east-1:12345678901x:cluster/a",
	"hash in the name":     "arn:aws:eks:us-east-1:123456789012:cluster/a#b",
	"name too long":        "arn:aws:eks:us-east-1:123456789012:cluster/" + strings.Repeat("a", 101),
	"name with a hyphen":   "arn:aws:eks:us-east-1:123456789012:cluster/-a",
	"quote":                `arn:aws:eks:us-east-1:123456789012:cluster/a"`,
	"blank before":         " arn:aws:eks:us-east-1:123456789012:cluster/a",
	"line break behind it": "arn:aws:eks:us-east-1:123456789012:cluster/a\n",
}

func TestParseClusterARNRefuses(t *testing.T) {
	for name, arn := range malformed {
		t.Run(name, func(t *testing.T) {
			if got, err := awsirsa.ParseClusterARN(arn); err == nil {
				t.Errorf("accepted as %+v", got)
			}
		})
	}
}

func TestHubNameHasAtMost31Characters(t *testing.T) {
	hub := mustParse(t, hubARN)
	hub.Name = strings.Repeat("h", 31)
	name, err := awsirsa.HubRoleName(hub)
	if err != nil || len(name) != 64 || !strings.HasSuffix(name, "_managed-cluster-identity-creator") {
		t.Errorf("31 characters: %q, %v", name, err)
	}
	hub.Name += "h"
	if name, err := awsirsa.HubRoleName(hub); err == nil || !strings.Contains(err.Error(), "at most 31") {
		t.Errorf("32 characters: %q, %v", name, err)
	}
	if _,
		err := awsirsa.NewHubDriver(awsirsa.HubDriverOptions{Hub: hub.String(), IAM: newCloud(),
		EKS: newCloud()}); err == nil {
		t.Error("a hub with a name too long is accepted")
	}
}

func FuzzParseClusterARN(f *testing.F) {
	f.Add(hubARN)
	f.Add("arn:aws-us-gov:eks:us-gov-west-1:123456789012:cluster/a")
	for _, arn := range malformed {
		f.Add(arn)
	}
	f.Fuzz(func(t *testing.T, s string) {
		arn, err := awsirsa.ParseClusterARN(s)
		if err != nil {
			return
		}
		if arn.String() != s {
			t.Errorf("%q is accepted as %q: a claim has one spelling", s, arn)
		}
		if strings.ContainsAny(arn.Name+arn.Account, `#:/"*`) {
			t.Errorf("%q could be part of another ID, ARN or policy", s)
		}
		for _, name := range []string{awsirsa.GrantedRole(arn, arn).Name(), awsirsa.AgentRoleName(arn, arn)} {
			if !roleName.MatchString(name) {
				t.Errorf("%q cannot be the name of a role", name)
			}
		}
	})
}
