package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/story"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// asProgram makes the test binary run the program instead of the tests.
const asProgram = "HUB_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	logTo(io.Discard, nil)
	os.Exit(m.Run())
}

func TestFlags(t *testing.T) {
	o, err := parseFlags([]string{"--registration-auth", "csr", "--bootstrap-user", "a", "--bootstrap-user", "b", "--bootstrap-group", "g",
		"--auto-approve-user", "c", "--leader-elect", "--metrics-bind-address", "0", "--health-probe-bind-address", ":1"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if len(o.auth) != 1 || o.auth[0].name != "csr" || o.defaultAuth != "csr" || strings.Join(o.bootstrapUsers, " ") != "a b" ||
		strings.Join(o.bootstrapGroups, " ") != "g" || strings.Join(o.autoApproveUsers, " ") != "c" ||
		!o.leaderElect || o.demo != "" || o.metricsAddress != "0" || o.probeAddress != ":1" {
		t.Errorf("%+v", o)
	}
	o, err = parseFlags([]string{"--registration-auth", "aws-irsa", "--eks-hub-cluster-arn", hubARN, "--auto-approve-arn", "a", "--auto-approve-arn", "b"}, io.Discard)
	if err != nil || len(o.auth) != 1 || o.auth[0].name != "aws-irsa" || o.defaultAuth != "" || o.hubARN != hubARN || strings.Join(o.autoApproveARNs, " ") != "a b" {
		t.Errorf("aws-irsa: %+v, %v", o, err)
	}
	o, err = parseFlags(nil, io.Discard)
	if err != nil || len(o.auth) != 1 || len(o.bootstrapUsers) != 1 || len(o.bootstrapGroups) != 1 || len(o.autoApproveUsers) != 0 || o.leaderElect {
		t.Errorf("defaults: %+v, %v", o, err)
	}
}

// Certificates of add-ons are approved by default where clusters use certificates. Tokens take RBAC of their own.
func TestFlagsOfAddOns(t *testing.T) {
	for name, row := range map[string]struct {
		args []string
		want string
	}{
		"default":                  {nil, "csr"},
		"default with both":        {[]string{"--registration-auth", "csr,aws-irsa", "--eks-hub-cluster-arn", hubARN}, "csr"},
		"default with AWS IAM":     {[]string{"--registration-auth", "aws-irsa", "--eks-hub-cluster-arn", hubARN}, ""},
		"csr with AWS IAM":         {[]string{"--registration-auth", "aws-irsa", "--eks-hub-cluster-arn", hubARN, "--addon-registration-auth", "csr"}, "csr"},
		"both":                     {[]string{"--addon-registration-auth", "csr,token"}, "csr token"},
		"one twice":                {[]string{"--addon-registration-auth", "token", "--addon-registration-auth", "token"}, "token"},
		"none":                     {[]string{"--addon-registration-auth="}, ""},
		"demo with certificates":   {[]string{"--demo"}, "csr token"},
		"demo of a hub on AWS EKS": {[]string{"--demo=aws-irsa"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := parseFlags(row.args, io.Discard)
			var got []string
			for _, a := range o.addOnAuth {
				got = append(got, a.name)
			}
			if err != nil || strings.Join(got, " ") != row.want {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

func TestFlagsOfDemos(t *testing.T) {
	for argument, want := range map[string]struct{ auth, defaultAuth, hubARN string }{
		"--demo":          {"csr", "csr", ""},
		"--demo=csr":      {"csr", "csr", ""},
		"--demo=aws-irsa": {"aws-irsa", "", demoHubARN},
	} {
		t.Run(argument, func(t *testing.T) {
			o, err := parseFlags([]string{argument}, io.Discard)
			if err != nil || o.demo != want.auth || len(o.auth) != 1 || o.auth[0].name != want.auth || o.defaultAuth != want.defaultAuth || o.hubARN != want.hubARN {
				t.Errorf("%+v, %v", o, err)
			}
		})
	}
}

const hubARN = "arn:aws:eks:eu-central-1:111111111111:cluster/hub"

func TestFlagsThatCannotWork(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"unknown auth type":           {[]string{"--registration-auth", "csr", "--registration-auth", "magic"}, `--registration-auth: unknown auth type "magic": use one of aws-irsa, csr`},
		"default that is not enabled": {[]string{"--default-registration-auth", "aws-irsa"}, `--default-registration-auth: unknown auth type "aws-irsa": use one of csr`},
		"ARN without aws-irsa":        {[]string{"--eks-hub-cluster-arn", hubARN}, "--registration-auth=aws-irsa"},
		"pattern without aws-irsa":    {[]string{"--auto-approve-arn", hubARN}, "--registration-auth=aws-irsa"},
		"aws-irsa without ARN":        {[]string{"--registration-auth", "aws-irsa"}, "--eks-hub-cluster-arn is missing"},
		"ARN that is none":            {[]string{"--registration-auth", "aws-irsa", "--eks-hub-cluster-arn", "foo"}, `--eks-hub-cluster-arn: "foo" is not the ARN`},
		"default that is left out":    {[]string{"--registration-auth", "aws-irsa", "--eks-hub-cluster-arn", hubARN, "--default-registration-auth", "csr"}, `unknown auth type "csr"`},
		"token for clusters":          {[]string{"--registration-auth", "csr,token"}, "--registration-auth: token registers add-ons only: use --addon-registration-auth=token"},
		"unknown add-on auth type":    {[]string{"--addon-registration-auth", "csr,magic"}, `--addon-registration-auth: unknown auth type "magic": use one of csr, token`},
		"demo with add-on auth types": {[]string{"--demo", "--addon-registration-auth", "csr"}, "leave --registration-auth"},
		"unknown demo":                {[]string{"--demo=magic"}, `--demo: unknown auth type "magic": use one of aws-irsa, csr`},
		"demo of nothing":             {[]string{"--demo="}, `--demo: unknown auth type ""`},
		"demo with auth types":        {[]string{"--demo", "--registration-auth", "csr"}, "leave --registration-auth"},
		"demo with the ARN of a hub":  {[]string{"--demo=aws-irsa", "--eks-hub-cluster-arn", hubARN}, "leave --registration-auth"},
		"argument":                    {[]string{"csr"}, `unexpected argument "csr"`},
		"missing kubeconfig":          {nil, "set KUBECONFIG"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", "/nonexistent")
			if err := run(t.Context(), test.args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
	if err := run(t.Context(), []string{"--help"}, io.Discard, io.Discard); !errors.Is(err, pflag.ErrHelp) {
		t.Errorf("--help: %v", err)
	}
}

// checkEmpty reports files that the demo left behind.
func checkEmpty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("files left behind: %v, %v", left, err)
	}
}

// cancelAfter cancels once the demo has printed a text.
type cancelAfter struct {
	strings.Builder
	text   string
	cancel context.CancelFunc
}

func (w *cancelAfter) Write(p []byte) (int, error) {
	if strings.Contains(string(p), w.text) {
		w.cancel()
	}
	return w.Builder.Write(p)
}

func TestInterruptedDemoRemovesEverything(t *testing.T) {
	kubetest.Assets(t)
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := run(ctx, []string{"--demo"}, &cancelAfter{text: " 1. ", cancel: cancel}, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	checkEmpty(t, dir)
}

func TestDemo(t *testing.T) {
	kubetest.Assets(t)
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	var out strings.Builder
	if err := run(t.Context(), []string{"--demo", "--leader-elect"}, &out, io.Discard); err != nil {
		t.Error(err)
	}
	checkEmpty(t, dir)
	checkText(t, out.String(),
		`Two control planes run`,
		`manifests of the hub are applied`,
		`hub controller starts`,
		`manifests of the agent are applied[^.]*bootstrap credential`,
		`agent starts[^.]*\. [^.]*bootstrap\s+credential`,
		`ManagedCluster "cluster1" appears`,
		`accepted +false`,
		`request +cluster1-[0-9a-f]{32}\n`,
		`asked by +system:bootstrap:[a-z0-9]{6}\n`,
		`administrator accepts`,
		`namespace +cluster1\n`,
		`hub approves the request`,
		`stores its certificate`,
		`user \(CN\) +system:open-cluster-management:cluster1:[a-z0-9]+\n`,
		`group \(O\) +system:open-cluster-management:cluster1\n`,
		`group \(O\) +system:open-cluster-management:managed-clusters\n`,
		`expires +20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC`,
		`has joined`,
		`own namespace:\s+allowed`,
		`neighbour "cluster2": forbidden`,
		`namespace "cluster2"\n`,
		`creates the add-on "search"`,
		`item +type kubeClient, without driver and subject\n`,
		`driver +token\n`,
		`user +system:serviceaccount:cluster1:cluster1-search-agent\n`,
		`objects +Role search-token-role, RoleBinding search-token-role,\s+ServiceAccount cluster1-search-agent\n`,
		`TokenInfrastructureReady is True: ServiceAccount\s+cluster1/cluster1-search-agent\s+\(UID:`,
		`Secret +open-cluster-management-agent-addon/search-hub-kubeconfig\n`,
		`expires +20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ`,
		`AddonTokenRefreshed is True`,
		`add-on\s+reads\s+it:\s+allowed`,
		`cluster1/search-settings\n`,
		`own\s+cluster:\s+forbidden`,
		`namespace\s+"cluster2"\n`,
		`namespace\s+"cluster1"\n`,
		`deletes the add-on`,
		`hub +nothing is left after \d`,
		`Secret +gone after \d`,
		`token +refused with 401 after \d`,
		`administrator denies`,
		`HubAcceptedManagedCluster is False: HubClusterAdminDenied`,
		`namespace "cluster1"\n`,
		`Done in \d+s`)
}

// The demo uses neither the machine's AWS configuration nor the network: each of these would make an AWS client fail that reads it.
func TestDemoAWS(t *testing.T) {
	kubetest.Assets(t)
	dir, home := t.TempDir(), t.TempDir()
	for _, file := range []string{"config", "credentials"} {
		if err := os.MkdirAll(filepath.Join(home, ".aws", file), 0o700); err != nil { // a folder cannot be read
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "--demo=aws-irsa", "--leader-elect")
	cmd.Env = append(os.Environ(), asProgram+"=1", "TMPDIR="+dir, "HOME="+home, "AWS_REGION=nowhere", "AWS_ROLE_ARN=none", "AWS_WEB_IDENTITY_TOKEN_FILE=/nonexistent",
		"AWS_ENDPOINT_URL=http://127.0.0.1:1", "HTTPS_PROXY=http://127.0.0.1:1")
	var errOut strings.Builder
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil || errOut.Len() > 0 {
		t.Errorf("%v: %s", err, &errOut)
	}
	checkEmpty(t, dir)
	const hash = `[0-9a-f]{32}`
	checkText(t, string(out),
		`^\nA cluster joins a hub by AWS IAM\. Both clusters are embedded[^.]*\. AWS is\s+simulated`,
		`Two control planes run`,
		`hub +arn:aws:eks:eu-central-1:111111111111:cluster/hub\n`,
		`cluster +arn:aws:eks:eu-west-1:222222222222:cluster/shop\n`,
		`platform team creates the two roles`,
		`hub +hub_managed-cluster-identity-creator\n`,
		`agent +ocm-managed-cluster-`+hash+`\n`,
		`hub controller starts`,
		`agent starts`,
		`ManagedCluster "cluster1" appears`,
		`accepted +false\n`,
		`eks-managed-cluster-arn:\s+arn:aws:eks:eu-west-1:222222222222:cluster/shop\n`,
		`in AWS +no role, no access entry\n`,
		`administrator accepts`,
		`role +ocm-hub-`+hash+`\n`,
		`trusts +arn:aws:iam::222222222222:role/\s+ocm-managed-cluster-`+hash+`\n`,
		`if tagged +managed_cluster_name=shop\n`,
		`may +eks:DescribeCluster, eks:ListClusters on the hub\n`,
		`access entry +group open-cluster-management:cluster1\n`,
		`command +aws eks get-token`,
		`has joined`,
		`own namespace:\s+allowed`,
		`user +arn:aws:sts::111111111111:assumed-role/\s+ocm-hub-`+hash+`/`,
		`group +open-cluster-management:cluster1\n`,
		`A thief "cluster2"`,
		`HubAcceptedManagedCluster is False: GrantFailed`,
		`is of cluster\s+"cluster1"\s+already`,
		`administrator denies`,
		`role and\s+access\s+entry\s+still\s+exist`,
		`HubAcceptedManagedCluster is False: HubClusterAdminDenied`,
		`namespace "cluster1"\n`,
		`deletes the access entry, then\s+the\s+role`,
		`in AWS +no role, no access entry\n`,
		`Done in \d+s`)
}

// A hub that serves no add-ons runs all the same, and says so. Once it serves them, the program runs what they need.
func TestHubFindsAddOns(t *testing.T) {
	cluster := kubetest.StartNew(t)
	kubeconfig := cluster.Kubeconfig(t)
	for _, row := range []struct {
		name, auth, crd string   // crd is applied first unless it is empty
		started         []string // names of controllers
		others          []string
		says            bool
	}{
		{"no add-ons", "csr,token", ocm.CRD, []string{"registration-hub", "csr-approver"}, []string{"csr-addon-approver", "addon-token-infrastructure"}, true},
		{"no add-ons wanted", "", "", []string{"registration-hub", "csr-approver"}, []string{"csr-addon-approver", "addon-token-infrastructure"}, false},
		{"add-ons", "csr,token", addon.CRD, []string{"registration-hub", "csr-approver", "csr-addon-approver", "addon-token-infrastructure"}, nil, false},
		{"tokens are still revoked", "csr", "", []string{"csr-addon-approver", "addon-token-infrastructure"}, nil, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.crd != "" {
				if _, err := story.Apply(t.Context(), cluster.Client(), row.crd); err != nil {
					t.Fatal(err)
				}
			}
			log := logUntil(t, kubeconfig, row.auth, row.started)
			if strings.Contains(log, "The hub serves no ManagedClusterAddOns") != row.says {
				t.Error(log)
			}
			for _, name := range row.others {
				if strings.Contains(log, "controller="+name) {
					t.Errorf("%s runs", name)
				}
			}
		})
	}
}

// logUntil runs the program until all controllers with these names have workers, and returns its log.
func logUntil(t *testing.T, kubeconfig, addOnAuth string, controllers []string) (log string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "--addon-registration-auth="+addOnAuth, "--metrics-bind-address=0", "--health-probe-bind-address=0")
	cmd.Env = append(os.Environ(), asProgram+"=1", "KUBECONFIG="+kubeconfig)
	out, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	missing := slices.Clone(controllers)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := lines.Text()
		log += line + "\n"
		missing = slices.DeleteFunc(missing, func(name string) bool {
			return strings.Contains(line, "Starting workers") && strings.Contains(line, "controller="+name+" ")
		})
		if len(missing) == 0 {
			cancel()
		}
	}
	_ = cmd.Wait() // killed
	if len(missing) > 0 {
		t.Fatalf("%q do not run:\n%s", missing, log)
	}
	return log
}

// checkText checks what a demo prints, in this order.
func checkText(t *testing.T, text string, wants ...string) {
	t.Helper()
	rest := text
	for _, want := range wants {
		at := regexp.MustCompile(want).FindStringIndex(rest)
		if at == nil {
			t.Errorf("lacks, in this order, %s", want)
			continue
		}
		rest = rest[at[1]:]
	}
	for line := range strings.Lines(text) {
		if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > 80 {
			t.Errorf("wider than 80 columns: %s", line)
		}
	}
	if secret := regexp.MustCompile(`[a-z0-9]{6}\.[a-z0-9]{16}|eyJ|k8s-aws-v1|AKIA|ASIA|PRIVATE|BEGIN`).FindString(text); secret != "" {
		t.Error("prints a secret")
	}
	if t.Failed() {
		t.Log(text)
	}
}
