package awsirsa_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/awsirsa"
)

// fill replaces the placeholders of the proposal.
var fill = strings.NewReplacer(
	"<hub-account-id>", "111111111111", "<hub-cluster-account-id>", "111111111111", "<hub-cluster-name>", "hub",
	"<hub-region>", "eu-central-1",
	"<managed-cluster-account-id>", "222222222222", "<managed-cluster-name>", "shop", "<klusterlet-name>", "klusterlet",
	"<oidc-provider>", "oidc.eks.example.com/id/ABC", "<md5-hash-unique-identifier>", "5e6856386691a476d9c610f8f3e37a3a")

const issuer = "https://oidc.eks.example.com/id/ABC"

func sameJSON(t *testing.T, got json.RawMessage, want string) {
	t.Helper()
	var a, b any
	regtest.Must(t, json.Unmarshal(got, &a))
	regtest.Must(t, json.Unmarshal([]byte(fill.Replace(want)), &b))
	if !reflect.DeepEqual(a, b) {
		t.Errorf("got %s\nwant %s", got, fill.Replace(want))
	}
}

func TestHubRolePoliciesAreThoseOfTheProposal(t *testing.T) {
	hub, managed := pair(t)
	role := awsirsa.GrantedRole(hub, managed)
	sameJSON(t, role.Access, `{"Version": "2012-10-17", "Statement": [{
		"Effect": "Allow", "Action": ["eks:DescribeCluster", "eks:ListClusters"],
		"Resource": "arn:aws:eks:<hub-region>:<hub-account-id>:cluster/<hub-cluster-name>"}]}`)
	sameJSON(t, role.Trust, `{"Version": "2012-10-17", "Statement": [{
		"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::<managed-cluster-account-id>:role/ocm-managed-cluster-<md5-hash-unique-identifier>"},
		"Action": "sts:AssumeRole", "Condition": {"StringEquals": {
			"aws:PrincipalTag/hub_cluster_account_id": "<hub-cluster-account-id>",
			"aws:PrincipalTag/hub_cluster_name": "<hub-cluster-name>",
			"aws:PrincipalTag/managed_cluster_account_id": "<managed-cluster-account-id>",
			"aws:PrincipalTag/managed_cluster_name": "<managed-cluster-name>"}}}]}`)
}

func TestAgentRoleIsThatOfTheProposal(t *testing.T) {
	hub, managed := pair(t)
	role, err := awsirsa.AgentRole(hub, managed, issuer, "", "")
	regtest.Must(t, err)
	statement := func(agent string) string {
		return `{"Effect": "Allow", "Principal": {"Federated": "arn:aws:iam::<managed-cluster-account-id>:oidc-provider/<oidc-provider>"},
			"Action": "sts:AssumeRoleWithWebIdentity", "Condition": {"StringEquals": {
				"<oidc-provider>:sub": "system:serviceaccount:open-cluster-management-agent:<klusterlet-name>-` + agent + `-sa",
				"<oidc-provider>:aud": "sts.amazonaws.com"}}}`
	}
	sameJSON(t, role.Trust, `{"Version": "2012-10-17", "Statement": [`+statement("registration")+`,`+
		statement("work")+`]}`)
	sameJSON(t, role.Access, `{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole",
		"Resource": "arn:aws:iam::<hub-account-id>:role/ocm-hub-<md5-hash-unique-identifier>"}]}`)
	want := map[string]string{"hub_cluster_account_id": "111111111111", "hub_cluster_name": "hub",
		"managed_cluster_account_id": "222222222222", "managed_cluster_name": "shop"}
	if !reflect.DeepEqual(role.Tags, want) ||
		role.ARN != fill.Replace("arn:aws:iam::222222222222:role/ocm-managed-cluster-<md5-hash-unique-identifier>") {
		t.Errorf("role %q with the tags %q", role.ARN, role.Tags)
	}
}

func TestHubRoleHasTheLeastPermissions(t *testing.T) {
	hub, _ := pair(t)
	role, err := awsirsa.HubRole(hub, issuer, awsirsa.AccessEntries)
	regtest.Must(t, err)
	sameJSON(t, role.Trust, `{"Version": "2012-10-17", "Statement": [{
		"Effect": "Allow", "Principal": {"Federated": "arn:aws:iam::<hub-account-id>:oidc-provider/<oidc-provider>"},
		"Action": "sts:AssumeRoleWithWebIdentity", "Condition": {"StringEquals": {
			"<oidc-provider>:sub": "system:serviceaccount:open-cluster-management-hub:registration-controller-sa",
			"<oidc-provider>:aud": "sts.amazonaws.com"}}}]}`)
	sameJSON(t, role.Access, `{"Version": "2012-10-17", "Statement": [
		{"Effect": "Allow", "Resource": "arn:aws:iam::<hub-account-id>:role/ocm-hub-*",
			"Action": ["iam:CreateRole", "iam:DeleteRole", "iam:DeleteRolePolicy",
			"iam:GetRole", "iam:GetRolePolicy", "iam:PutRolePolicy", "iam:TagRole", "iam:UpdateAssumeRolePolicy"]},
		{"Effect": "Allow", "Resource": "arn:aws:eks:<hub-region>:<hub-account-id>:cluster/<hub-cluster-name>", "Action": ["eks:CreateAccessEntry", "eks:TagResource"]},
		{"Effect": "Allow", "Resource": "arn:aws:eks:<hub-region>:<hub-account-id>:access-entry/<hub-cluster-name>/role/<hub-account-id>/ocm-hub-*",
			"Action": ["eks:DeleteAccessEntry", "eks:DescribeAccessEntry", "eks:TagResource", "eks:UpdateAccessEntry"]}]}`)
	if role.ARN != "arn:aws:iam::111111111111:role/hub_managed-cluster-identity-creator" {
		t.Errorf("role %q", role.ARN)
	}
	if role, err = awsirsa.HubRole(hub, issuer, awsirsa.AWSAuth); err != nil ||
		strings.Contains(string(role.Access), "eks:") {
		t.Errorf("with aws-auth: %s, %v", string(role.Access), err)
	}
}

func TestPoliciesLieInThePartitionOfTheClusters(t *testing.T) {
	hub := mustParse(t, "arn:aws-cn:eks:cn-north-1:111111111111:cluster/hub")
	managed := mustParse(t, "arn:aws-cn:eks:cn-northwest-1:222222222222:cluster/shop")
	agent, err := awsirsa.AgentRole(hub, managed, issuer, "", "")
	regtest.Must(t, err)
	of, err := awsirsa.HubRole(hub, issuer, awsirsa.AccessEntries)
	regtest.Must(t, err)
	granted := awsirsa.GrantedRole(hub, managed)
	for _, p := range []json.RawMessage{granted.Trust, granted.Access, agent.Trust, agent.Access, of.Trust, of.Access} {
		if strings.Contains(string(p), "arn:aws:") {
			t.Errorf("%s names another partition", p)
		}
	}
	if _, err := awsirsa.AgentRole(awsirsa.ClusterARN(mustParse(t, hubARN)), managed, issuer, "", ""); err == nil {
		t.Error("a pair across partitions is accepted")
	}
}

func TestIssuerIsAnHTTPSURL(t *testing.T) {
	hub, managed := pair(t)
	for name, issuer := range map[string]string{"empty": "", "http": "http://a.example", "no scheme": "a.example",
		"star":  "https://*.example",
		"query": "https://a.example?b", "user": "https://u@a.example", "variable": "https://${aws:x}.example"} {
		t.Run(name, func(t *testing.T) {
			if _, err := awsirsa.AgentRole(hub, managed, issuer, "", ""); err == nil {
				t.Errorf("%q is accepted", issuer)
			}
		})
	}
}

func TestVerifySaysWhatDiffers(t *testing.T) {
	hub, _ := pair(t)
	want, err := awsirsa.HubRole(hub, issuer, awsirsa.AccessEntries)
	regtest.Must(t, err)
	name, _ := awsirsa.HubRoleName(hub)
	for _, c := range []struct {
		name, says string
		change     func(*cloud, *role)
	}{
		{name: "as printed", change: func(*cloud, *role) {}},
		{name: "named statement, other order", change: func(_ *cloud, r *role) {
			r.trust = strings.Replace(r.trust, `{"Effect"`, `{"Sid":"one","Effect"`, 1)
			r.policies[name] = strings.Replace(r.policies[name], `"iam:CreateRole","iam:DeleteRole"`,
				`"iam:DeleteRole","iam:CreateRole"`, 1)
		}},
		{name: "no role", says: "NoSuchEntity", change: func(c *cloud, _ *role) { delete(c.roles, name) }},
		{name: "other audience", says: "trust policy differs", change: func(_ *cloud, r *role) {
			r.trust = strings.Replace(r.trust, "sts.amazonaws.com", "other", 1)
		}},
		{name: "other account", says: "right account", change: func(_ *cloud, r *role) {
			r.arn = strings.Replace(r.arn, "1111", "3333", 1)
		}},
		{name: "no permissions", says: "cannot be read", change: func(_ *cloud, r *role) { delete(r.policies, name) }},
		{name: "more permissions", says: "differs", change: func(_ *cloud, r *role) {
			r.policies[name] = strings.Replace(r.policies[name], "ocm-hub-*", "*", 1)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cloud := newCloud()
			r := cloud.newRole(name, nil, string(want.Trust))
			r.policies[name] = string(want.Access)
			c.change(cloud, r)
			err := want.Verify(t.Context(), cloud)
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}
