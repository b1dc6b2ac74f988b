package hubcmd

import (
	"bytes"
	"cmp"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/manifests"
)

// widHub runs a command of wid hub, and returns what it prints.
func widHub(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := NewHub()
	root.SilenceErrors, root.SilenceUsage = true, true
	cli.Finish(root)
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&out)
	err := root.ExecuteContext(t.Context())
	return strings.TrimSpace(out.String()), err
}

// must runs a command that has to work.
func must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := widHub(t, args...)
	if err != nil {
		t.Fatalf("wid hub %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// fails runs a command that has to fail.
func fails(t *testing.T, code int, want string, args ...string) {
	t.Helper()
	_, err := widHub(t, args...)
	expectFailure(t, err, code, want)
}

// nobody is the flag of a kubeconfig whose server does not answer.
func nobody(t *testing.T) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "c"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	regtest.Must(t, clientcmd.WriteToFile(*config, file))
	return "--kubeconfig=" + file
}

// Mistakes are found before any request, apart from those that need one.
// Nothing is printed that could be taken for manifests.
func TestHubMistakes(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	nobody := nobody(t)
	const (
		image   = "--image=registry.example/x:v1"
		aws     = "--registration-auth=aws-irsa"
		hubARN  = "--eks-hub-cluster-arn=" + eksHub
		chinese = "--eks-managed-cluster-arn=arn:aws-cn:eks:cn-north-1:222222222222:cluster/shop"
		issuer  = "--oidc-issuer=https://oidc.example/id/A"
		eks     = "--hub-apiserver=https://ab.gr7.eu-central-1.eks.amazonaws.com"
	)
	for name, row := range map[string]struct {
		args []string
		code int // wrong usage otherwise
		want string
	}{
		"hub, unknown command": {args: []string{"acept"}, want: `unknown command "acept"`},
		"init without image":   {args: []string{"init"}, want: "--image"},
		"init, unknown auth type": {args: []string{"init", image, "--registration-auth=csr,ldap"},
			want: `--registration-auth: unknown auth type "ldap": use one of aws-irsa, csr`},
		"init, no auth type": {args: []string{"init", image, "--registration-auth="},
			want: "--registration-auth: it is set but empty"},
		"init, waiting for nothing": {args: []string{"init", image, "--wait"}, want: "--apply"},
		"init, token without end": {args: []string{"init", image, "--token-ttl=0"},
			want: "--token-ttl"},
		"init, token": {args: []string{"init", image, "--registration-auth=csr,token"},
			want: "token registers add-ons only"},
		"init, add-ons by ldap": {args: []string{"init", image, "--addon-registration-auth=token,ldap"},
			want: `--addon-registration-auth: unknown auth type "ldap": use one of csr, token`},
		"init, no time": {args: []string{"init", image, "--timeout=0"},
			want: "--timeout"},
		"init, http address": {args: []string{"init", image, "--apply", nobody,
			"--hub-apiserver=http://hub.example"}, want: `--hub-apiserver: the server has to be https://`},
		"init, hub unreachable": {args: []string{"init", image, "--apply", nobody}, code: cli.ExitUnavailable,
			want: "127.0.0.1:1"},
		"init, aws without ARN": {args: []string{"init", image, "--registration-auth=aws-irsa"},
			want: "--eks-hub-cluster-arn is missing"},
		"init, no ARN": {args: []string{"init", image, "--registration-auth=aws-irsa",
			"--eks-hub-cluster-arn=foo"}, want: `--eks-hub-cluster-arn: "foo" is not the ARN`},
		"init, ARN without aws": {args: []string{"init", image, hubARN},
			want: "--registration-auth=aws-irsa"},
		"init, name too long": {args: []string{"init", image, aws, hubARN + strings.Repeat("b", 30)},
			want: "has 33 characters"},
		"init, csr on EKS": {args: []string{"init", image, "--apply", nobody, eks},
			want: "EKS signs none"},
		"token without end": {args: []string{"token", "--token-ttl=0"},
			want: "--token-ttl"},
		"token, http address": {args: []string{"token", nobody, "--hub-apiserver=http://hub.example"},
			want: `--hub-apiserver: the server has to be https://`},
		"token, hub unreachable": {args: []string{"token", nobody}, code: cli.ExitUnavailable, want: "127.0.0.1:1"},
		"policies without a hub": {args: []string{"policies"},
			want: "--eks-hub-cluster-arn is missing"},
		"policies without issuer": {args: []string{"policies", hubARN},
			want: "--oidc-issuer is missing"},
		"policies, http issuer": {args: []string{"policies", hubARN, "--oidc-issuer=http://a"},
			want: "https URL"},
		"policies, no cluster": {args: []string{"policies", hubARN, issuer, "--eks-managed-cluster-arn=foo"},
			want: `--eks-managed-cluster-arn: "foo"`},
		"policies, two partitions": {args: []string{"policies", hubARN, issuer, chinese},
			want: "partition"},
		"policies, auth type": {args: []string{"policies", hubARN, issuer, "--registration-auth=ldap"},
			want: `"ldap"`},
		"accept nothing":   {args: []string{"accept"}, want: "--clusters"},
		"accept, argument": {args: []string{"accept", "cluster1"}, want: `"cluster1"`},
		"accept, bad name": {args: []string{"accept", "--clusters=cluster1,a.b"},
			want: `"a.b" is not a DNS label`},
		"accept, reserved name": {args: []string{"accept", "--clusters=kube-system"},
			want: `"kube-system" is reserved`},
		"accept, claim of two": {args: []string{"accept", "--clusters=cluster1,cluster2", "--claim=x"},
			want: "--claim and --approve-request are for one cluster"},
		"accept, request of two": {args: []string{"accept", "--clusters=cluster1,cluster2", "--approve-request=x"},
			want: "--claim and --approve-request are for one cluster"},
		"accept, hub unreachable": {args: []string{"accept", "--clusters=cluster1", nobody},
			code: cli.ExitUnavailable, want: "127.0.0.1:1"},
		"deny nothing": {args: []string{"deny"}, want: "--clusters"},
		"cleanup, negative age": {args: []string{"cleanup", "--older-than=-1s"},
			want: "--older-than"},
		"cleanup, no kubeconfig": {args: []string{"cleanup"}, code: cli.ExitMisconfigured,
			want: "pass --kubeconfig"},
		"status, output": {args: []string{"status", "-o", "xml"}, want: `"xml"`},
		"status, bad name": {args: []string{"status", "--clusters=A"},
			want: `"A" is not a DNS label`},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := widHub(t, row.args...)
			expectFailure(t, err, cmp.Or(row.code, cli.ExitUsage), row.want)
			if strings.Contains(out, "apiVersion") {
				t.Errorf("printed %s", out)
			}
		})
	}
}

// Without --apply the manifests are printed, and no cluster is contacted.
// TestManifestsAreAsPrinted of package manifests has the objects, the rights
// and the arguments that belong to each option.
func TestHubInitPrints(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	const csr, aws, arn = "--registration-auth=csr", "--registration-auth=aws-irsa", "--eks-hub-cluster-arn=" + eksHub
	const odd = `registry.example/hub@sha256:0 "x": y`
	certificates, iam := []string{"csr"}, []string{"aws-irsa"}
	for name, row := range map[string]struct {
		flags []string
		want  manifests.HubOptions
	}{
		"default":       {nil, manifests.HubOptions{AuthTypes: certificates}},
		"agents of OCM": {[]string{csr, "--ocm-agents"}, manifests.HubOptions{AuthTypes: certificates, OCMAgents: true}},
		"AWS":           {[]string{aws, arn}, manifests.HubOptions{AuthTypes: iam, ARN: eksHub}},
		"AWS, approval by ARN": {[]string{aws, arn, "--auto-approve-arn=arn:aws:eks:*:222222222222:cluster/a-*",
			"--auto-approve-arn=arn:aws:eks:*:333333333333:cluster/*"},
			manifests.HubOptions{AuthTypes: iam, ARN: eksHub, AutoApproveARNs: []string{
				"arn:aws:eks:*:222222222222:cluster/a-*", "arn:aws:eks:*:333333333333:cluster/*"}}},
		"both, cleanup": {[]string{csr, aws, arn, "--cleanup-image=" + odd},
			manifests.HubOptions{AuthTypes: []string{"csr", "aws-irsa"}, ARN: eksHub, CleanupImage: odd}},
		"relay": {[]string{"--relay"},
			manifests.HubOptions{AuthTypes: certificates, Relay: manifests.RelayConstrained}},
		"relay, older": {[]string{"--relay=legacy"},
			manifests.HubOptions{AuthTypes: certificates, Relay: manifests.RelayLegacy}},
		"add-ons, csr": {[]string{"--addon-registration-auth=csr"},
			manifests.HubOptions{AuthTypes: certificates, AddOnAuthTypes: certificates}},
		"add-ons, both": {[]string{"--addon-registration-auth=csr,token"},
			manifests.HubOptions{AuthTypes: certificates, AddOnAuthTypes: []string{"csr", "token"}}},
		"one user of a name with a comma": {[]string{"--auto-approve-user=system:serviceaccount:a:b",
			"--auto-approve-user=c,d"},
			manifests.HubOptions{AuthTypes: certificates, AutoApproveUsers: []string{"system:serviceaccount:a:b", "c,d"}}},
	} {
		t.Run(name, func(t *testing.T) {
			row.want.Image = odd
			want, err := manifests.Hub(row.want)
			regtest.Must(t, err)
			got := must(t, append([]string{"init", "--image=" + odd}, row.flags...)...)
			if got != strings.TrimSpace(want) || strings.Contains(got, ":bootstrap:ocm-agents") != row.want.OCMAgents {
				t.Errorf("printed\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestHubPoliciesPrints(t *testing.T) {
	for name, row := range map[string]struct {
		args       []string
		has, lacks string
	}{
		"hub":       {nil, "eks:CreateAccessEntry", "klusterlet"},
		"mixed hub": {[]string{"--registration-auth=csr,aws-irsa"}, "iam:CreateRole", "eks:CreateAccessEntry"},
		"agent":     {[]string{"--eks-managed-cluster-arn=" + eksManaged}, ":klusterlet-registration-sa", "iam:CreateRole"},
		"agent in another namespace": {[]string{"--eks-managed-cluster-arn=" + eksManaged, "--namespace=second"},
			":second:klusterlet-registration-sa", "cluster-management-agent:"},
		"klusterlet": {[]string{"--eks-managed-cluster-arn=" + eksManaged, "--klusterlet-name=mine"}, ":mine-work-sa",
			":klusterlet-"},
	} {
		t.Run(name, func(t *testing.T) {
			out := must(t, append([]string{"policies", "--eks-hub-cluster-arn=" + eksHub,
				"--oidc-issuer=https://oidc.example/id/A"}, row.args...)...)
			if !json.Valid([]byte(out)) || !strings.Contains(out, row.has) || strings.Contains(out, row.lacks) {
				t.Errorf("got %s, want %s and no %s", out, row.has, row.lacks)
			}
		})
	}
}
