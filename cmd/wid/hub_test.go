package main

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/registration/manifests"
)

// saToken returns what looks like the token of a ServiceAccount.
func saToken(expires time.Time) string {
	part := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	return part(`{"alg":"RS256"}`) + "." +
		part(`{"sub":"system:serviceaccount:a:b","exp":`+strconv.FormatInt(expires.Unix(), 10)+`}`) + "." + part("signature")
}

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Mistakes are found before any request, apart from those that need one. No
// message holds a token, and nothing is printed that could be taken for
// manifests.
func TestHubMistakes(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	const token = "abcdef.0123456789abcdef"
	account, expired := saToken(time.Now().Add(time.Hour)), saToken(time.Now().Add(-time.Hour))
	nobody := "--kubeconfig=" + writeFile(t, "nobody.yaml", kubeconfigOf(t, "https://127.0.0.1:1", nil, nil, nil, "x"))
	notCA := writeFile(t, "not-ca.crt", "hello")
	pin := "--ca-cert-hash=sha256:" + strings.Repeat("ab", 32)
	const (
		image      = "--image=registry.example/x:v1"
		aws        = "--registration-auth=aws-irsa"
		hubARN     = "--eks-hub-cluster-arn=arn:aws:eks:eu-central-1:111111111111:cluster/hub"
		managedARN = "--eks-managed-cluster-arn=arn:aws:eks:eu-west-1:222222222222:cluster/shop"
		chinese    = "--eks-managed-cluster-arn=arn:aws-cn:eks:cn-north-1:222222222222:cluster/shop"
		issuer     = "--oidc-issuer=https://oidc.example/id/A"
		eks        = "--hub-apiserver=https://ab.gr7.eu-central-1.eks.amazonaws.com"
	)
	joining := func(more ...string) []string {
		return append([]string{"join", "--cluster-name=cluster1", "--hub-apiserver=https://127.0.0.1:1", image}, more...)
	}
	for name, tc := range map[string]struct {
		args  []string
		stdin string
		code  int
		want  string
	}{
		"hub, unknown command": {args: []string{"hub", "acept"}, code: cli.ExitUsage, want: `unknown command "acept"`},
		"init without image":   {args: []string{"hub", "init"}, code: cli.ExitUsage, want: "--image"},
		"init, unknown auth type": {args: []string{"hub", "init", image, "--registration-auth=csr,ldap"},
			code: cli.ExitUsage, want: `--registration-auth: unknown auth type "ldap": use one of aws-irsa, csr`},
		"init, no auth type": {args: []string{"hub", "init", image, "--registration-auth="}, code: cli.ExitUsage,
			want: "--registration-auth: it is set but empty"},
		"init, waiting for nothing": {args: []string{"hub", "init", image, "--wait"}, code: cli.ExitUsage, want: "--apply"},
		"init, token without end": {args: []string{"hub", "init", image, "--token-ttl=0"}, code: cli.ExitUsage,
			want: "--token-ttl"},
		"init, token": {args: []string{"hub", "init", image, "--registration-auth=csr,token"},
			code: cli.ExitUsage, want: "token registers add-ons only"},
		"init, add-ons by ldap": {args: []string{"hub", "init", image, "--addon-registration-auth=token,ldap"},
			code: cli.ExitUsage, want: `--addon-registration-auth: unknown auth type "ldap": use one of csr, token`},
		"join, token": {args: joining("--registration-auth=token"), code: cli.ExitUsage,
			want: "token registers add-ons only"},
		"join, add-ons by ldap": {args: joining("--addon-kubeclient-registration-auth=ldap"), code: cli.ExitUsage,
			want: `--addon-kubeclient-registration-auth: unknown auth type "ldap"`},
		"join, token of 5 s": {args: joining("--addon-kubeclient-registration-auth=token",
			"--addon-token-expiration-seconds=5"), code: cli.ExitUsage,
			want: "--addon-token-expiration-seconds: token: ExpirationSeconds is 5"},
		"join, lifetime alone": {args: joining("--addon-token-expiration-seconds=3600"), code: cli.ExitUsage,
			want: "--addon-token-expiration-seconds needs --addon-kubeclient-registration-auth=token"},
		"join, lifetime of csr": {args: joining("--addon-kubeclient-registration-auth=csr",
			"--addon-token-expiration-seconds=3600"), code: cli.ExitUsage,
			want: "--addon-token-expiration-seconds needs --addon-kubeclient-registration-auth=token"},
		"init, no time": {args: []string{"hub", "init", image, "--timeout=0"}, code: cli.ExitUsage,
			want: "--timeout"},
		"init, no kubeconfig": {args: []string{"hub", "init", image, "--apply"}, code: cli.ExitMisconfigured,
			want: "pass --kubeconfig"},
		"init, unknown context": {args: []string{"hub", "init", image, "--apply", nobody, "--context=prod"},
			code: cli.ExitMisconfigured, want: `"prod"`},
		"init, http address": {args: []string{"hub", "init", image, "--apply", nobody,
			"--hub-apiserver=http://hub.example"}, code: cli.ExitUsage, want: `--hub-apiserver: the server has to be https://`},
		"init, hub unreachable": {args: []string{"hub", "init", image, "--apply", nobody}, code: cli.ExitUnavailable,
			want: "127.0.0.1:1"},
		"init, aws without ARN": {args: []string{"hub", "init", image, "--registration-auth=aws-irsa"},
			code: cli.ExitUsage, want: "--eks-hub-cluster-arn is missing"},
		"init, no ARN": {args: []string{"hub", "init", image, "--registration-auth=aws-irsa",
			"--eks-hub-cluster-arn=foo"}, code: cli.ExitUsage, want: `--eks-hub-cluster-arn: "foo" is not the ARN`},
		"init, ARN without aws": {args: []string{"hub", "init", image, hubARN}, code: cli.ExitUsage,
			want: "--registration-auth=aws-irsa"},
		"init, name too long": {args: []string{"hub", "init", image, aws, hubARN + strings.Repeat("b", 30)},
			code: cli.ExitUsage, want: "has 33 characters"},
		"init, csr on EKS": {args: []string{"hub", "init", image, "--apply", nobody, eks}, code: cli.ExitUsage,
			want: "EKS signs none"},
		"init, both on EKS": {args: []string{"hub", "init", image, "--apply", nobody, eks,
			"--registration-auth=csr,aws-irsa", hubARN}, code: cli.ExitUsage, want: "EKS signs none"},
		"token without end": {args: []string{"hub", "token", "--token-ttl=0"}, code: cli.ExitUsage,
			want: "--token-ttl"},
		"token, http address": {args: []string{"hub", "token", nobody, "--hub-apiserver=http://hub.example"},
			code: cli.ExitUsage, want: `--hub-apiserver: the server has to be https://`},
		"token, hub unreachable": {args: []string{"hub", "token", nobody}, code: cli.ExitUnavailable, want: "127.0.0.1:1"},
		"policies without a hub": {args: []string{"hub", "policies"}, code: cli.ExitUsage,
			want: "--eks-hub-cluster-arn is missing"},
		"policies without issuer": {args: []string{"hub", "policies", hubARN}, code: cli.ExitUsage,
			want: "--oidc-issuer is missing"},
		"policies, http issuer": {args: []string{"hub", "policies", hubARN, "--oidc-issuer=http://a"},
			code: cli.ExitUsage, want: "https URL"},
		"policies, no cluster": {args: []string{"hub", "policies", hubARN, issuer, "--eks-managed-cluster-arn=foo"},
			code: cli.ExitUsage, want: `--eks-managed-cluster-arn: "foo"`},
		"policies, two partitions": {args: []string{"hub", "policies", hubARN, issuer, chinese}, code: cli.ExitUsage,
			want: "partition"},
		"policies, auth type": {args: []string{"hub", "policies", hubARN, issuer, "--registration-auth=ldap"},
			code: cli.ExitUsage, want: `"ldap"`},
		"accept nothing":   {args: []string{"hub", "accept"}, code: cli.ExitUsage, want: "--clusters"},
		"accept, argument": {args: []string{"hub", "accept", "cluster1"}, code: cli.ExitUsage, want: `"cluster1"`},
		"accept, bad name": {args: []string{"hub", "accept", "--clusters=cluster1,a.b"}, code: cli.ExitUsage,
			want: `"a.b" is not a DNS label`},
		"accept, reserved name": {args: []string{"hub", "accept", "--clusters=kube-system"}, code: cli.ExitUsage,
			want: `"kube-system" is reserved`},
		"accept, claim of two": {args: []string{"hub", "accept", "--clusters=cluster1,cluster2", "--claim=x"},
			code: cli.ExitUsage, want: "--claim and --approve-request are for one cluster"},
		"accept, request of two": {args: []string{"hub", "accept", "--clusters=cluster1,cluster2", "--approve-request=x"},
			code: cli.ExitUsage, want: "--claim and --approve-request are for one cluster"},
		"accept, hub unreachable": {args: []string{"hub", "accept", "--clusters=cluster1", nobody},
			code: cli.ExitUnavailable, want: "127.0.0.1:1"},
		"deny nothing": {args: []string{"hub", "deny"}, code: cli.ExitUsage, want: "--clusters"},
		"deny, hub unreachable": {args: []string{"hub", "deny", "--clusters=cluster1", nobody}, code: cli.ExitUnavailable,
			want: "127.0.0.1:1"},
		"cleanup, negative age": {args: []string{"hub", "cleanup", "--older-than=-1s"}, code: cli.ExitUsage,
			want: "--older-than"},
		"cleanup, argument": {args: []string{"hub", "cleanup", "cluster1"}, code: cli.ExitUsage, want: `"cluster1"`},
		"cleanup, no kubeconfig": {args: []string{"hub", "cleanup"}, code: cli.ExitMisconfigured,
			want: "pass --kubeconfig"},
		"cleanup, hub unreachable": {args: []string{"hub", "cleanup", nobody}, code: cli.ExitUnavailable,
			want: "127.0.0.1:1"},
		"status, output": {args: []string{"hub", "status", "-o", "xml"}, code: cli.ExitUsage, want: `"xml"`},
		"status, bad name": {args: []string{"hub", "status", "--clusters=A"}, code: cli.ExitUsage,
			want: `"A" is not a DNS label`},
		"status, hub unreachable": {args: []string{"hub", "status", nobody}, code: cli.ExitUnavailable,
			want: "127.0.0.1:1"},
		"join without a name": {args: []string{"join"}, code: cli.ExitUsage, want: "--cluster-name"},
		"join, bad name": {args: joining("--cluster-name=A_B"), code: cli.ExitUsage,
			want: `--cluster-name: the cluster name "A_B" is not a DNS label`},
		"join, reserved name": {args: joining("--cluster-name=managed-clusters"), code: cli.ExitUsage,
			want: "is reserved"},
		"join, unknown auth type": {args: joining("--registration-auth=aws"), code: cli.ExitUsage,
			want: `unknown auth type "aws": use one of aws-irsa, csr`},
		"join, aws without hub": {args: joining(aws, managedARN), code: cli.ExitUsage,
			want: "--eks-hub-cluster-arn is missing"},
		"join, aws without cluster": {args: joining(aws, hubARN), code: cli.ExitUsage,
			want: "--eks-managed-cluster-arn is missing"},
		"join, two partitions":  {args: joining(aws, hubARN, chinese), code: cli.ExitUsage, want: "partition"},
		"join, ARN without aws": {args: joining(managedARN), code: cli.ExitUsage, want: "--registration-auth=aws-irsa"},
		"join, csr on EKS": {args: joining("--hub-token="+token, pin,
			"--hub-apiserver=https://AB.gr7.eu-central-1.eks.amazonaws.com"), code: cli.ExitUsage, want: "EKS signs none"},
		"join without a hub":   {args: joining("--hub-apiserver="), code: cli.ExitUsage, want: "--hub-apiserver"},
		"join without a token": {args: joining(), code: cli.ExitUsage, want: "--hub-token"},
		"join, http hub": {args: joining("--hub-token="+token, pin, "--hub-apiserver=http://hub.example"),
			code: cli.ExitUsage, want: `not "http://hub.example"`},
		"join, neither pin nor CA": {args: joining("--hub-token=" + token), code: cli.ExitUsage, want: "--ca-cert-hash"},
		"join, pin and CA": {args: joining("--hub-token="+token, pin, "--ca-file=x"), code: cli.ExitUsage,
			want: "exclude each other"},
		"join, account without CA": {args: joining("--hub-token="+account, pin), code: cli.ExitUsage, want: "--ca-file"},
		"join, expired token": {args: joining("--hub-token="+expired, "--ca-file="+notCA), code: cli.ExitUsage,
			want: "expired at"},
		"join, no token": {args: joining("--hub-token=hunter2", pin), code: cli.ExitUsage,
			want: "neither a bootstrap token"},
		"join, no token from stdin": {args: joining("--hub-token=-", pin), stdin: "hunter2\n", code: cli.ExitUsage,
			want: "neither a bootstrap token"},
		"join, empty stdin": {args: joining("--hub-token=-", pin), code: cli.ExitUsage,
			want: "neither a bootstrap token"},
		"join, malformed pin": {args: joining("--hub-token="+token, "--ca-cert-hash=sha256:12"), code: cli.ExitUsage,
			want: "--ca-cert-hash"},
		"join, no such CA file": {args: joining("--hub-token="+account, "--ca-file=/nonexistent"), code: cli.ExitUsage,
			want: "/nonexistent"},
		"join, CA without a CA": {args: joining("--hub-token="+account, "--ca-file="+notCA), code: cli.ExitUsage,
			want: "--ca-file"},
		"join without image": {args: joining("--hub-token="+token, pin, "--image="), code: cli.ExitUsage,
			want: "--image"},
		"join, waiting for nothing": {args: joining("--hub-token="+token, pin, "--wait"), code: cli.ExitUsage,
			want: "--apply"},
		"join, hub unreachable": {args: joining("--hub-token="+token, pin, "--timeout=200ms"), code: cli.ExitUnavailable,
			want: "127.0.0.1:1"},
		"unjoin without a name": {args: []string{"unjoin"}, code: cli.ExitUsage, want: "--cluster-name"},
		"unjoin, bad name": {args: []string{"unjoin", "--cluster-name=a.b"}, code: cli.ExitUsage,
			want: "is not a DNS label"},
		"unjoin, no kubeconfig": {args: []string{"unjoin", "--cluster-name=cluster1"}, code: cli.ExitMisconfigured,
			want: "pass --kubeconfig"},
		"unjoin, unreachable": {args: []string{"unjoin", "--cluster-name=cluster1", nobody}, code: cli.ExitUnavailable,
			want: "127.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := wid(t, tc.stdin, tc.args...)
			if err == nil || cli.ExitCode(t.Context(), err) != tc.code || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %v, want code %d and %s", err, tc.code, tc.want)
			}
			all := out + err.Error()
			for _, secret := range []string{token[7:], account, expired, "hunter2", "eyJ"} {
				if strings.Contains(all, secret) {
					t.Errorf("a token shows: %s", all)
				}
			}
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
		"AWS, agents of OCM": {[]string{aws, arn, "--ocm-agents"},
			manifests.HubOptions{AuthTypes: iam, ARN: eksHub, OCMAgents: true}},
		"AWS, relay": {[]string{aws, arn, "--relay"},
			manifests.HubOptions{AuthTypes: iam, ARN: eksHub, Relay: manifests.RelayConstrained}},
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
			if err != nil {
				t.Fatal(err)
			}
			got := must(t, append([]string{"hub", "init", "--image=" + odd}, row.flags...)...)
			if got != strings.TrimSpace(want) || strings.Contains(got, ":bootstrap:ocm-agents") != row.want.OCMAgents {
				t.Errorf("printed\n%s\ninstead of\n%s", got, want)
			}
		})
	}
}

// Manifests with a credential go to a terminal only if that is asked for.
func TestJoinPrintsNoSecretToATerminal(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("this system has no pseudo-terminals:", err)
	}
	defer terminal.Close() //nolint:errcheck // nothing was written
	root := newRoot()
	root.SetArgs([]string{"join", "--cluster-name=cluster1", "--hub-apiserver=https://127.0.0.1:1", "--image=x",
		"--hub-token=x", "--ca-file=x"})
	root.SetOut(terminal)
	if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "--reveal") {
		t.Errorf("got %v", err)
	}
}
