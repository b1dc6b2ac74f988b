package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

const (
	eksHub      = "arn:aws:eks:eu-central-1:" + account + ":cluster/hub"
	eksManaged  = "arn:aws:eks:eu-west-1:222222222222:cluster/shop"
	eksIssuer   = "--oidc-issuer=https://oidc.example/id/A"
	creatorRole = "arn:aws:iam::" + account + ":role/hub_managed-cluster-identity-creator"
)

// installed is what manifests install of a program.
func installed(t *testing.T, manifests string) (accounts map[string]string, args []string, account string, names []string) {
	t.Helper()
	objects, err := parseManifests(manifests)
	if err != nil {
		t.Fatal(err)
	}
	accounts = map[string]string{}
	for _, o := range objects {
		names = append(names, o.GetKind()+" "+o.GetName())
		switch o.GetKind() {
		case "ServiceAccount":
			accounts[o.GetName()] = o.GetAnnotations()[aws.RoleARNAnnotation]
		case "Deployment":
			account, _, _ = unstructured.NestedString(o.Object, "spec", "template", "spec", "serviceAccountName")
			containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
			for _, c := range containers {
				if container, ok := c.(map[string]any); ok {
					args, _, _ = unstructured.NestedStringSlice(container, "args")
				}
			}
		}
	}
	return accounts, args, account, names
}

// The program gets the ARN, its ServiceAccount the role, and rights to aws-auth only where the hub uses that.
func TestHubInitForAWS(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	for authTypes, awsAuth := range map[string]bool{"aws-irsa": false, "csr,aws-irsa": true} {
		accounts, args, account, names := installed(t, must(t, "hub", "init", "--image=x", "--registration-auth="+authTypes, "--eks-hub-cluster-arn="+eksHub))
		if accounts[account] != creatorRole || account != hubServiceAccount || !slices.Contains(args, "--registration-auth="+authTypes) ||
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

// The agent runs as a ServiceAccount that the role of wid hub policies trusts.
func TestJoinForAWS(t *testing.T) {
	j := &join{cluster: "cluster1", authType: registration.AuthTypeAWS, arns: clusterARNs{eksHub, eksManaged}, installing: installing{image: "x"}}
	manifests, err := j.manifests(&bootstrap.ClusterInfo{Server: "https://hub.example"}, "token")
	if err != nil {
		t.Fatal(err)
	}
	accounts, args, account, _ := installed(t, manifests)
	var role struct{ ARN string }
	printed := must(t, "hub", "policies", "--eks-hub-cluster-arn="+eksHub, "--eks-managed-cluster-arn="+eksManaged, eksIssuer)
	if err := json.Unmarshal([]byte(printed), &role); err != nil || accounts[account] != role.ARN || len(accounts) != 1 {
		t.Errorf("ServiceAccounts %v, role %q, %v", accounts, role.ARN, err)
	}
	if !strings.Contains(printed, `"system:serviceaccount:open-cluster-management-agent:`+account+`"`) || !strings.Contains(manifests, "{kind: ServiceAccount, name: "+account+",") {
		t.Errorf("%q is not trusted or has no rights:\n%s", account, printed)
	}
	if !slices.Contains(args, "--eks-hub-cluster-arn="+eksHub) || !slices.Contains(args, "--eks-managed-cluster-arn="+eksManaged) || !slices.Contains(args, "--registration-auth=aws-irsa") {
		t.Errorf("args %q", args)
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
	if r := verify(); r.code != exitMisconfigured || !strings.Contains(r.stderr, "NoSuchEntity") || !strings.Contains(r.stderr, "create it") {
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
	if r := verify(); r.code != exitMisconfigured || !strings.Contains(r.stderr, "inline policy") {
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

func TestClaimOfAWS(t *testing.T) {
	drivers, err := hubDrivers(fake.NewClientBuilder().Build())
	if err != nil {
		t.Fatal(err)
	}
	for annotation, want := range map[string]string{"eks-managed-cluster-arn": eksManaged, "agent.open-cluster-management.io/managed-cluster-arn": eksManaged} {
		cluster := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{annotation: want}}}
		if authType, claim, err := claimOf(drivers, cluster, &rbacv1.ClusterRole{}); authType != registration.AuthTypeAWS || claim != want || err != nil {
			t.Errorf("%s: %q, %q, %v", annotation, authType, claim, err)
		}
	}
	var out strings.Builder
	if statusTable(&out, []clusterStatus{{Name: "a", AuthType: registration.AuthTypeAWS, Claim: eksManaged}}); !strings.Contains(out.String(), eksManaged) {
		t.Error(out.String())
	}
	bad := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"eks-managed-cluster-arn": "foo"}}}
	if _, _, err := claimOf(drivers, bad, &rbacv1.ClusterRole{}); err == nil {
		t.Error("a claim that is no ARN is accepted")
	}
}

// The Secret says which driver made the credential.
func TestUnjoinPicksTheDriver(t *testing.T) {
	local := fake.NewClientBuilder().Build()
	for name, tc := range map[string]struct {
		authType string
		arns     clusterARNs
		want     string
	}{
		"certificate":     {"csr", clusterARNs{}, "there is no Secret"},
		"unknown":         {"mine", clusterARNs{}, "there is no Secret"},
		"AWS":             {"aws-irsa", clusterARNs{eksHub, eksManaged}, "there is no Secret"},
		"AWS without ARN": {"aws-irsa", clusterARNs{}, "--eks-hub-cluster-arn is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{Data: map[string][]byte{"kubeconfig": []byte("x"), "auth-type": []byte(tc.authType)}}
			if err := tell(t.Context(), local, "cluster1", secret, &tc.arns); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

// What an address proves is refused, with the reason. What it does not prove is a warning.
func TestSupportMatrixIsEnforced(t *testing.T) {
	const onEKS, elsewhere = "https://ab.gr7.eu-central-1.eks.amazonaws.com", "https://hub.example:6443"
	hub := func(server string, authTypes ...string) func(*cobra.Command) error {
		return func(cmd *cobra.Command) error { return checkHub(cmd, authTypes, server) }
	}
	managed := func(server, authType string) func(*cobra.Command) error {
		return func(cmd *cobra.Command) error { checkManaged(cmd, authType, server); return nil }
	}
	for name, tc := range map[string]struct {
		check          func(*cobra.Command) error
		refuses, warns string
	}{
		"csr on EKS":                             {hub(onEKS, "csr"), "EKS signs none", ""},
		"csr elsewhere":                          {hub(elsewhere, "csr"), "", ""},
		"aws-irsa on EKS":                        {hub(onEKS, "aws-irsa"), "", ""},
		"aws-irsa alone elsewhere":               {hub(elsewhere, "aws-irsa"), "", `alone needs a hub on EKS, which checks tokens of AWS itself: on other hubs use it together with "csr"`},
		"both on EKS":                            {hub(onEKS, "csr", "aws-irsa"), "EKS signs none", ""},
		"both elsewhere":                         {hub(elsewhere, "csr", "aws-irsa"), "", "needs an authentication webhook for tokens of AWS"},
		"managed cluster on EKS":                 {managed(onEKS, "aws-irsa"), "", ""},
		"managed cluster elsewhere":              {managed(elsewhere, "aws-irsa"), "", "needs a managed cluster on EKS, since its ARN names it"},
		"managed cluster elsewhere that has csr": {managed(elsewhere, "csr"), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var said strings.Builder
			cmd := &cobra.Command{}
			cmd.SetErr(&said)
			err := tc.check(cmd)
			if (err != nil) != (tc.refuses != "") || err != nil && !strings.Contains(err.Error(), tc.refuses) {
				t.Errorf("got %v, want %q", err, tc.refuses)
			}
			if (said.Len() > 0) != (tc.warns != "") || !strings.Contains(said.String(), tc.warns) {
				t.Errorf("warns %q, want %q", said.String(), tc.warns)
			}
		})
	}
}

func TestIsEKS(t *testing.T) {
	for server, want := range map[string]bool{
		"https://AB.gr7.eu-central-1.eks.amazonaws.com":       true,
		"https://ab.sk1.cn-north-1.eks.amazonaws.com.cn":      true,
		"https://ab.gr7.eu-central-1.eks.amazonaws.com:443/x": true,
		"https://ab.eks-cluster.eu-central-1.api.aws":         true,
		"https://hub.example:6443":                            false,
		"https://hub.example/.eks.amazonaws.com":              false,
		"https://x.eks.amazonaws.com.attacker.example":        false,
		"::": false,
	} {
		if got := isEKS(server); got != want {
			t.Errorf("isEKS(%q) = %t", server, got)
		}
	}
}
