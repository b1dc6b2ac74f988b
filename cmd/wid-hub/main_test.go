package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/scenario"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/manifests"
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
	logTo(io.Discard)
	os.Exit(m.Run())
}

func TestFlags(t *testing.T) {
	o,
		err := parseFlags([]string{"--registration-auth", "csr", "--bootstrap-user", "a", "--bootstrap-user", "b",
		"--bootstrap-group", "g",
		"--auto-approve-user", "c", "--ocm-agents", "--leader-elect", "--metrics-bind-address", "0",
		"--health-probe-bind-address", ":1"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if len(o.auth) != 1 || o.auth[0].name != "csr" || o.defaultAuth != "csr" ||
		strings.Join(o.bootstrapUsers, " ") != "a b" ||
		strings.Join(o.bootstrapGroups, " ") != "g" || strings.Join(o.autoApproveUsers, " ") != "c" ||
		!o.ocmAgents || !o.leaderElect || o.metricsAddress != "0" || o.probeAddress != ":1" {
		t.Errorf("flags give %+v", o)
	}
	o,
		err = parseFlags([]string{"--registration-auth", "aws-irsa", "--eks-hub-cluster-arn", hubARN, "--auto-approve-arn",
		"a", "--auto-approve-arn", "b"}, io.Discard)
	if err != nil || len(o.auth) != 1 || o.auth[0].name != "aws-irsa" || o.defaultAuth != "" || o.hubARN != hubARN ||
		strings.Join(o.autoApproveARNs, " ") != "a b" {
		t.Errorf("aws-irsa: %+v, %v", o, err)
	}
	o, err = parseFlags(nil, io.Discard)
	if err != nil || len(o.auth) != 1 || len(o.bootstrapUsers) != 1 || len(o.bootstrapGroups) != 1 ||
		len(o.autoApproveUsers) != 0 || o.ocmAgents || o.leaderElect {
		t.Errorf("defaults: %+v, %v", o, err)
	}
}

// A flag of a driver that is not enabled is named. The manifests pass the
// default group to each hub.
func TestFlagsWithoutEffect(t *testing.T) {
	aws := []string{"--registration-auth=aws-irsa", "--eks-hub-cluster-arn=" + hubARN, "--auto-approve-user=a",
		"--bootstrap-user=b"}
	for name, row := range map[string]struct {
		args []string
		want string
	}{
		"AWS IAM alone": {append(aws, "--bootstrap-group=g"),
			"--auto-approve-user --bootstrap-user --bootstrap-group"},
		"AWS IAM, default group": {append(aws, "--bootstrap-group="+registration.BootstrapGroup),
			"--auto-approve-user --bootstrap-user"},
		"AWS IAM and certificates": {append(aws, "--registration-auth=csr"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := parseFlags(row.args, io.Discard)
			if got := strings.Join(o.unread, " "); err != nil || got != row.want {
				t.Errorf("got %q, %v, want %q", got, err, row.want)
			}
		})
	}
}

// Certificates of add-ons are approved by default where clusters use
// certificates. Tokens take RBAC of their own.
func TestFlagsOfAddOns(t *testing.T) {
	for name, row := range map[string]struct {
		args []string
		want string
	}{
		"default":              {nil, "csr"},
		"default with both":    {[]string{"--registration-auth", "csr,aws-irsa", "--eks-hub-cluster-arn", hubARN}, "csr"},
		"default with AWS IAM": {[]string{"--registration-auth", "aws-irsa", "--eks-hub-cluster-arn", hubARN}, ""},
		"csr with AWS IAM": {[]string{"--registration-auth", "aws-irsa", "--eks-hub-cluster-arn", hubARN,
			"--addon-registration-auth", "csr"}, "csr"},
		"both": {[]string{"--addon-registration-auth", "csr,token"}, "csr token"},
		"one twice": {[]string{"--addon-registration-auth", "token", "--addon-registration-auth", "token"},
			"token"},
		"none": {[]string{"--addon-registration-auth="}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := parseFlags(row.args, io.Discard)
			var got []string
			for _, a := range o.addOnAuth {
				got = append(got, a.name)
			}
			if err != nil || strings.Join(got, " ") != row.want {
				t.Errorf("got %q, %v, want %q", got, err, row.want)
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
		"unknown auth type": {[]string{"--registration-auth", "csr", "--registration-auth", "magic"},
			`--registration-auth: unknown auth type "magic": use one of aws-irsa, csr`},
		"default that is not enabled": {[]string{"--default-registration-auth", "aws-irsa"},
			`--default-registration-auth: unknown auth type "aws-irsa": use one of csr`},
		"ARN without aws-irsa":     {[]string{"--eks-hub-cluster-arn", hubARN}, "--registration-auth=aws-irsa"},
		"pattern without aws-irsa": {[]string{"--auto-approve-arn", hubARN}, "--registration-auth=aws-irsa"},
		"aws-irsa without ARN":     {[]string{"--registration-auth", "aws-irsa"}, "--eks-hub-cluster-arn is missing"},
		"ARN that is none": {[]string{"--registration-auth", "aws-irsa", "--eks-hub-cluster-arn", "foo"},
			`--eks-hub-cluster-arn: "foo" is not the ARN`},
		"default that is left out": {[]string{"--registration-auth", "aws-irsa", "--eks-hub-cluster-arn", hubARN,
			"--default-registration-auth", "csr"}, `unknown auth type "csr"`},
		"token for clusters": {[]string{"--registration-auth", "csr,token"},
			"--registration-auth: token registers add-ons only: use --addon-registration-auth=token"},
		"unknown add-on auth type": {[]string{"--addon-registration-auth", "csr,magic"},
			`--addon-registration-auth: unknown auth type "magic": use one of csr, token`},
		"argument":              {[]string{"csr"}, `unexpected argument "csr"`},
		"missing kubeconfig":    {nil, "set KUBECONFIG"},
		"unverified API server": {nil, "insecure-skip-tls-verify"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "kubeconfig")
			t.Setenv("KUBECONFIG", file)
			if name == "unverified API server" {
				err := os.WriteFile(file,
					[]byte("{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: c}}], "+
						`clusters: [{name: c, cluster: {server: "https://127.0.0.1:1", insecure-skip-tls-verify: true}}]}`), 0o600)
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := run(t.Context(), test.args, io.Discard, io.Discard); err == nil ||
				!strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
	if err := run(t.Context(), []string{"--help"}, io.Discard, io.Discard); !errors.Is(err, pflag.ErrHelp) {
		t.Errorf("--help: %v", err)
	}
}

// The program runs with the RBAC of the manifests. A hub that serves no add-ons
// runs all the same, says so, and still revokes tokens. Once it serves them,
// the program runs what they need.
func TestHubOnARealAPIServer(t *testing.T) {
	cluster := kubetest.StartNew(t)
	if _, err := scenario.Apply(t.Context(), cluster.Client(), manifests.HubRBAC(), manifests.TokenRBAC(),
		manifests.OCMAgentsRBAC()); err != nil {
		t.Fatal(err)
	}
	kubeconfig := cluster.AccountKubeconfig(t, namespace, "registration-controller-sa")
	for _, row := range []struct {
		name, args, crd string   // crd is applied first unless it is empty
		started         []string // names of controllers
		others          []string
		says            bool
		warns           string
	}{
		{"no add-ons", "--addon-registration-auth=csr,token", ocm.CRD(),
			[]string{"registration-hub", "csr-approver", "addon-token-infrastructure"}, []string{"csr-addon-approver"},
			true, ""},
		{"no add-ons wanted", "--addon-registration-auth=", "",
			[]string{"registration-hub", "csr-approver", "addon-token-infrastructure"}, []string{"csr-addon-approver"},
			false, ""},
		{"add-ons", "--addon-registration-auth=csr,token", addon.CRD(),
			[]string{"registration-hub", "csr-approver", "csr-addon-approver", "addon-token-infrastructure"}, nil, false, ""},
		{"tokens are still revoked", "--addon-registration-auth=csr", "",
			[]string{"csr-addon-approver", "addon-token-infrastructure"}, nil, false, ""},
		{"AWS IAM", "--registration-auth=aws-irsa --auto-approve-user=x --eks-hub-cluster-arn=" + hubARN, "",
			[]string{"registration-hub", "addon-token-infrastructure"}, []string{"csr-approver", "csr-addon-approver"}, false,
			`Add csr to --registration-auth, or remove the flag." flag=--auto-approve-user`},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.crd != "" {
				if _, err := scenario.Apply(t.Context(), cluster.Client(), row.crd); err != nil {
					t.Fatal(err)
				}
			}
			log := logUntil(t, kubeconfig, strings.Fields(row.args), row.started)
			if strings.Contains(log, "forbidden") {
				t.Error(log)
			}
			if strings.Contains(log, "The hub serves no ManagedClusterAddOns") != row.says {
				t.Error(log)
			}
			if !strings.Contains(log, row.warns) {
				t.Errorf("the log has no %s:\n%s", row.warns, log)
			}
			for _, name := range row.others {
				if strings.Contains(log, "controller="+name) {
					t.Errorf("%s runs", name)
				}
			}
		})
	}
	t.Run("agents of Open Cluster Management", func(t *testing.T) { testOCMAgents(t, cluster.Client(), kubeconfig) })
}

// testOCMAgents runs the program until a cluster may list what only agents of
// Open Cluster Management list.
func testOCMAgents(t *testing.T, admin client.Client, kubeconfig string) {
	accepted := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"hubAcceptsClient": true}}}
	accepted.SetGroupVersionKind(ocm.GroupVersion.WithKind("ManagedCluster"))
	accepted.SetName("cluster1")
	if err := admin.Create(t.Context(), accepted); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, os.Args[0], "--ocm-agents", "--metrics-bind-address=0",
		"--health-probe-bind-address=0")
	cmd.Env = append(os.Environ(), asProgram+"=1", "KUBECONFIG="+kubeconfig)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }() // it was killed
	err := scenario.Wait(t.Context(), "the cluster got no right to list requests",
		func(ctx context.Context) (bool, error) {
			role := &rbacv1.ClusterRole{}
			err := admin.Get(ctx, client.ObjectKey{Name: registration.ClusterRoleName("cluster1")}, role)
			return slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
				return slices.Contains(r.Resources, "certificatesigningrequests") && slices.Contains(r.Verbs, "list")
			}), client.IgnoreNotFound(err)
		})
	if err != nil {
		t.Error(err)
	}
}

// logUntil runs the program until all controllers with these names have
// workers, and returns its log.
func logUntil(t *testing.T, kubeconfig string, args, controllers []string) (log string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0],
		append(args, "--leader-elect", "--metrics-bind-address=0", "--health-probe-bind-address=0")...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "KUBECONFIG="+kubeconfig)
	// it gives up its Lease
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGTERM) }, time.Minute
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
	_ = cmd.Wait() // the context has ended
	if len(missing) > 0 {
		t.Fatalf("%q do not run:\n%s", missing, log)
	}
	return log
}
