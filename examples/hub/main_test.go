package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/workloadid/workloadid/internal/kubetest"
)

func TestMain(m *testing.M) {
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
		!o.leaderElect || o.demo || o.metricsAddress != "0" || o.probeAddress != ":1" {
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
		"demo of aws-irsa":            {[]string{"--demo", "--registration-auth", "aws-irsa", "--eks-hub-cluster-arn", hubARN}, "--demo plays"},
		"argument":                    {[]string{"csr"}, `unexpected argument "csr"`},
		"missing kubeconfig":          {nil, "set KUBECONFIG"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", "/nonexistent")
			if err := run(t.Context(), test.args, io.Discard, new(slog.LevelVar)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
	if err := run(t.Context(), []string{"--help"}, io.Discard, new(slog.LevelVar)); !errors.Is(err, pflag.ErrHelp) {
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
	if err := run(ctx, []string{"--demo"}, &cancelAfter{text: " 1. ", cancel: cancel}, new(slog.LevelVar)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	checkEmpty(t, dir)
}

func TestDemo(t *testing.T) {
	kubetest.Assets(t)
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	var out strings.Builder
	if err := run(t.Context(), []string{"--demo", "--leader-elect"}, &out, new(slog.LevelVar)); err != nil {
		t.Error(err)
	}
	checkEmpty(t, dir)
	text := out.String()
	rest := text
	for _, want := range []string{
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
		`administrator denies`,
		`HubAcceptedManagedCluster is False: HubClusterAdminDenied`,
		`namespace "cluster1"\n`,
		`Done in \d+s`,
	} {
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
	if secret := regexp.MustCompile(`[a-z0-9]{6}\.[a-z0-9]{16}|eyJ|PRIVATE|BEGIN`).FindString(text); secret != "" {
		t.Error("prints a secret")
	}
	if t.Failed() {
		t.Log(text)
	}
}
