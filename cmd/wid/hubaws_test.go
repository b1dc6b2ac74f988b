package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/internal/testing/regtest"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

const (
	eksHub      = "arn:aws:eks:eu-central-1:" + account + ":cluster/hub"
	eksAttacker = "arn:aws:eks:eu-west-1:666666666666:cluster/evil"
	eksManaged  = "arn:aws:eks:eu-west-1:222222222222:cluster/shop"
	eksIssuer   = "--oidc-issuer=https://oidc.example/id/A"
	creatorRole = "arn:aws:iam::" + account + ":role/hub_managed-cluster-identity-creator"
)

// The program gets the ARN, its ServiceAccount the role, and rights to aws-auth only where the hub uses that.
func TestHubInitForAWS(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	for authTypes, awsAuth := range map[string]bool{"aws-irsa": false, "csr,aws-irsa": true} {
		accounts, args, account, names := regtest.Installed(t, must(t, "hub", "init", "--image=x", "--registration-auth="+authTypes, "--eks-hub-cluster-arn="+eksHub))
		if accounts[account] != creatorRole || account != regname.HubServiceAccount || !slices.Contains(args, "--registration-auth="+authTypes) ||
			!slices.Contains(args, "--eks-hub-cluster-arn="+eksHub) {
			t.Errorf("%s: ServiceAccounts %v, %q runs %q", authTypes, accounts, account, args)
		}
		for _, name := range []string{"hub:csr", "hub:csr-addons"} { // such a hub has both auth types
			if slices.Contains(names, "ClusterRole open-cluster-management:"+name) != awsAuth || slices.Contains(names, "ClusterRoleBinding open-cluster-management:"+name) != awsAuth {
				t.Errorf("%s: %s in %q", authTypes, name, names)
			}
		}
		if slices.Contains(names, "Role open-cluster-management:hub:aws-auth") != awsAuth {
			t.Errorf("%s: %q", authTypes, names)
		}
	}
}

func TestHubPoliciesPrints(t *testing.T) {
	for name, tc := range map[string]struct {
		args       []string
		has, lacks string
	}{
		"hub":        {nil, "eks:CreateAccessEntry", "klusterlet"},
		"mixed hub":  {[]string{"--registration-auth=csr,aws-irsa"}, "iam:CreateRole", "eks:CreateAccessEntry"},
		"agent":      {[]string{"--eks-managed-cluster-arn=" + eksManaged}, ":klusterlet-registration-sa", "iam:CreateRole"},
		"klusterlet": {[]string{"--eks-managed-cluster-arn=" + eksManaged, "--klusterlet-name=mine"}, ":mine-work-sa", ":klusterlet-"},
	} {
		t.Run(name, func(t *testing.T) {
			out := must(t, append([]string{"hub", "policies", "--eks-hub-cluster-arn=" + eksHub, eksIssuer}, tc.args...)...)
			if !json.Valid([]byte(out)) || !strings.Contains(out, tc.has) || strings.Contains(out, tc.lacks) {
				t.Error(out)
			}
		})
	}
}

// docs/registration.md shows what the commands in it print.
func TestDocumentedPolicies(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("..", "..", "docs", "registration.md"))
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)```sh\nwid (hub policies [^`]+)\n```\n\n```json\n(.*?)\n```").FindAllStringSubmatch(string(content), -1)
	if len(shown) != 2 {
		t.Fatalf("the page shows %d roles", len(shown))
	}
	for _, block := range shown {
		args := strings.Fields(strings.ReplaceAll(block[1], "\\\n", " "))
		if printed := strings.TrimSpace(must(t, args...)); printed != block[2] {
			t.Errorf("wid %s prints\n%s", strings.Join(args, " "), printed)
		}
	}
}

// The lines in docs/wid.md that create a role read keys that wid hub policies prints.
func TestDocumentedKeysOfARole(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("..", "..", "docs", "wid.md"))
	if err != nil {
		t.Fatal(err)
	}
	var printed map[string]any
	if err := json.Unmarshal([]byte(must(t, "hub", "policies", "--eks-hub-cluster-arn="+eksHub, "--eks-managed-cluster-arn="+eksManaged, eksIssuer)), &printed); err != nil {
		t.Fatal(err)
	}
	keys := regexp.MustCompile(`jq -[rc] '?\[?\.(\w+)`).FindAllStringSubmatch(string(content), -1)
	for _, key := range keys {
		if printed[key[1]] == nil {
			t.Errorf("%q is no key of %v", key[1], printed)
		}
	}
	if len(keys) != 4 {
		t.Errorf("the page reads %q", keys)
	}
}

// The role that is printed is the one that --verify accepts.
func TestHubPoliciesVerifies(t *testing.T) {
	w := newWorld(t)
	login := w.logins(t)
	args := []string{"hub", "policies", "--eks-hub-cluster-arn=" + eksHub, eksIssuer}
	verify := func() result { return w.exec(t, "", login, "wid", append(args, "--verify")...) }
	if r := verify(); r.code != cli.ExitMisconfigured || !strings.Contains(r.stderr, "NoSuchEntity") || !strings.Contains(r.stderr, "create it") {
		t.Errorf("no role: %+v", r)
	}
	var role struct {
		Name                      string
		TrustPolicy, AccessPolicy json.RawMessage
	}
	if err := json.Unmarshal([]byte(must(t, args...)), &role); err != nil {
		t.Fatal(err)
	}
	id, key := w.cloud.AWS().AddUser(account, "admin")
	admin := iam.New(iam.Options{Region: "eu-central-1", HTTPClient: w.cloud.Client(), Credentials: credentials.NewStaticCredentialsProvider(id, key, "")})
	trust, access := string(role.TrustPolicy), string(role.AccessPolicy)
	_, err := admin.CreateRole(t.Context(), &iam.CreateRoleInput{RoleName: &role.Name, AssumeRolePolicyDocument: &trust,
		Tags: []iamtypes.Tag{{Key: sdk.String("team"), Value: sdk.String("a")}}})
	if err != nil {
		t.Fatal(err)
	}
	if r := verify(); r.code != cli.ExitMisconfigured || !strings.Contains(r.stderr, "inline policy") {
		t.Errorf("no access policy: %+v", r)
	}
	if _, err := admin.PutRolePolicy(t.Context(), &iam.PutRolePolicyInput{RoleName: &role.Name, PolicyName: &role.Name, PolicyDocument: &access}); err != nil {
		t.Fatal(err)
	}
	if r := verify(); r.code != 0 || !strings.Contains(r.stdout, creatorRole) {
		t.Errorf("as printed: %+v", r)
	}
	if r := w.exec(t, "", []string{"AWS_PROFILE=typo"}, "wid", append(args, "--verify")...); r.code == 0 || strings.Contains(r.stderr, "create it") {
		t.Errorf("no login: %+v", r)
	}
}
