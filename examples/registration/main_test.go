package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

// asProgram makes the test binary run the program instead of the tests.
const asProgram = "REGISTRATION_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestArgumentsThatCannotWork(t *testing.T) {
	for name, args := range map[string][]string{"unknown auth type": {"-auth=magic"}, "no auth type": {"-auth="}, "argument": {"aws-irsa"}} {
		t.Run(name, func(t *testing.T) {
			if err := run(t.Context(), args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "use -auth=csr or -auth=aws-irsa") {
				t.Error(err)
			}
		})
	}
}

// The control planes take seconds to start, and minutes the first time.
func TestTheDemoSaysAtOnceWhatItDoes(t *testing.T) {
	t.Setenv("KUBEBUILDER_ASSETS", filepath.Join(t.TempDir(), "none"))
	t.Setenv("TMPDIR", t.TempDir()) // envtest leaves folders behind if it cannot start
	for _, auth := range []string{"csr", "aws-irsa"} {
		t.Run(auth, func(t *testing.T) {
			var out strings.Builder
			if err := run(t.Context(), []string{"-auth=" + auth}, &out, io.Discard); err == nil || !strings.Contains(out.String(), "Starting two control planes") {
				t.Errorf("%v, %s", err, &out)
			}
		})
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
	if err := run(ctx, nil, &cancelAfter{text: " 1. ", cancel: cancel}, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	checkEmpty(t, dir)
}

func TestDemo(t *testing.T) {
	kubetest.Assets(t)
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	var out strings.Builder
	if err := run(t.Context(), nil, &out, io.Discard); err != nil {
		t.Error(err)
	}
	checkEmpty(t, dir)
	checkText(t, out.String(),
		`Starting two control planes`,
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
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-auth=aws-irsa")
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
		`Starting two control planes`,
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
