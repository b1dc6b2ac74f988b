package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/testing/document"
	"github.com/workloadid/workloadid/internal/testing/regtest"
)

const (
	eksHub      = "arn:aws:eks:eu-central-1:" + account + ":cluster/hub"
	eksManaged  = "arn:aws:eks:eu-west-1:222222222222:cluster/shop"
	eksIssuer   = "--oidc-issuer=https://oidc.example/id/A"
	creatorRole = "arn:aws:iam::" + account + ":role/hub_managed-cluster-identity-creator"
)

// docs/registration.md has each right that the printed roles have, and each
// ServiceAccount that they trust.
func TestDocumentedPolicies(t *testing.T) {
	page := document.Read(t, "docs/registration.md").Section("Least permissions")
	var rights, trust [][]string
	for _, command := range page.Commands() {
		args := strings.Fields(command)[1:]
		var role struct {
			Name                      string
			TrustPolicy, AccessPolicy struct{ Statement []statement }
		}
		if err := json.Unmarshal([]byte(must(t, args...)), &role); err != nil {
			t.Fatal(err)
		}
		for _, s := range role.AccessPolicy.Statement {
			rights = append(rights, []string{quote(role.Name), quote(s.actions()...), quote(s.Resource)})
		}
		var subjects []string
		for _, s := range role.TrustPolicy.Statement {
			issuer := strings.TrimPrefix(args[len(args)-1], "https://")
			equals := s.Condition["StringEquals"]
			subjects = append(subjects, equals[issuer+":sub"])
			if s.Effect != "Allow" || !strings.HasSuffix(s.Principal.Federated, ":oidc-provider/"+issuer) ||
				len(s.Condition) != 1 || len(equals) != 2 || equals[issuer+":aud"] != "sts.amazonaws.com" ||
				!slices.Equal(s.actions(), []string{"sts:AssumeRoleWithWebIdentity"}) {
				t.Errorf("%s has the trust policy %+v", role.Name, s)
			}
		}
		trust = append(trust, []string{quote(role.Name), quote(subjects...)})
	}
	for heading, want := range map[string][][]string{"role": rights, "trusted role": trust} {
		if got := page.Rows(heading); len(want) < 2 || !slices.EqualFunc(got, want, slices.Equal[[]string]) {
			t.Errorf("the page has\n%q instead of\n%q", got, want)
		}
	}
}

// statement is a statement of an IAM policy. Action is one or a list.
type statement struct {
	Effect, Resource string
	Action           any
	Principal        struct{ Federated string }
	Condition        map[string]map[string]string
}

func (s statement) actions() (actions []string) {
	list, ok := s.Action.([]any)
	if !ok {
		list = []any{s.Action}
	}
	for _, action := range list {
		actions = append(actions, fmt.Sprint(action))
	}
	return actions
}

func quote(names ...string) string { return "`" + strings.Join(names, "`, `") + "`" }

// The lines in docs/wid.md that create a role read keys that wid hub policies
// prints.
func TestDocumentedKeysOfARole(t *testing.T) {
	var printed map[string]any
	out := must(t, "hub", "policies", "--eks-hub-cluster-arn="+eksHub, "--eks-managed-cluster-arn="+eksManaged, eksIssuer)
	if err := json.Unmarshal([]byte(out), &printed); err != nil {
		t.Fatal(err)
	}
	keys := regexp.MustCompile(`jq -[rc] '?\[?\.(\w+)`).FindAllStringSubmatch(document.Read(t, "docs/wid.md").Text, -1)
	for _, key := range keys {
		if printed[key[1]] == nil {
			t.Errorf("%q is no key of %v", key[1], printed)
		}
	}
	if len(keys) != 4 {
		t.Errorf("the page reads %q", keys)
	}
}

// The good path and the mistake of wid hub: the role that is printed is the one
// that --verify accepts. Package awsirsa has the differences that it finds.
func TestHubPoliciesVerifies(t *testing.T) {
	w := newEnvironment(t)
	login := w.logins(t)
	args := []string{"hub", "policies", "--eks-hub-cluster-arn=" + eksHub, eksIssuer}
	verify := func(env ...string) result { return w.exec(t, "", env, "wid", append(args, "--verify")...) }
	if r := verify(login...); r.code != cli.ExitMisconfigured || r.stdout != "" ||
		!strings.HasPrefix(r.stderr, "wid: ") || !strings.Contains(r.stderr, "create it") {
		t.Errorf("without the role: got %+v, want code %d", r, cli.ExitMisconfigured)
	}
	if r := verify("AWS_PROFILE=typo"); r.code == 0 || r.stdout != "" || strings.Contains(r.stderr, "create it") {
		t.Errorf("without a login: got %+v, want a failure that creates nothing", r)
	}
	var role struct {
		Name                      string
		TrustPolicy, AccessPolicy json.RawMessage
	}
	regtest.Must(t, json.Unmarshal([]byte(must(t, args...)), &role))
	id, key := w.cloud.AWS().AddUser(account, "admin")
	admin := iam.New(iam.Options{Region: "eu-central-1", HTTPClient: w.cloud.Client(),
		Credentials: credentials.NewStaticCredentialsProvider(id, key, "")})
	trust, access := string(role.TrustPolicy), string(role.AccessPolicy)
	_, err := admin.CreateRole(t.Context(), &iam.CreateRoleInput{RoleName: &role.Name, AssumeRolePolicyDocument: &trust})
	regtest.Must(t, err)
	_, err = admin.PutRolePolicy(t.Context(),
		&iam.PutRolePolicyInput{RoleName: &role.Name, PolicyName: &role.Name, PolicyDocument: &access})
	regtest.Must(t, err)
	if r := verify(login...); r.code != 0 || r.stderr != "" || !strings.Contains(r.stdout, creatorRole) {
		t.Errorf("as printed: got %+v, want code 0 and %s", r, creatorRole)
	}
}
