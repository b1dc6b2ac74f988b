package main

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(kubetest.Main(m)) }

func TestEmbedded(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), nil, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`^Cluster and cloud are simulated`,
		`tenant-a +assumed-role/tenant-a/tenant-a\.app +\S+ +minted`,
		`tenant-b +assumed-role/tenant-b/tenant-b\.app +\S+ +minted`,
		`tenant-a .* cached`,
		`tenant-b .* cached`,
		`"tenant-a/thief": .*denied: .*Not authorized to perform sts:AssumeRoleWithWebIdentity`,
		`"tenant-a/app": .*not found`,
		`"tenant-a/typo": .*12 digits, not "1234"`,
	} {
		if !regexp.MustCompile(want).MatchString(strings.Join(strings.Fields(out.String()), " ")) {
			t.Errorf("lacks %s", want)
		}
	}
	for line := range strings.Lines(out.String()) {
		if utf8.RuneCountInString(line) > 81 {
			t.Errorf("wider than 80 columns: %q", line)
		}
	}
	if strings.Contains(out.String(), "\x1b") || strings.Contains(out.String(), "eyJ") {
		t.Error("colours without a terminal, or a token")
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

// The same with a real cluster, whose issuer the embedded cloud trusts.
func TestCluster(t *testing.T) {
	cluster := kubetest.Start(t)
	namespace := cluster.Namespace(t)
	good, bare := serviceAccount(namespace, "app", roleOf("app")),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bare"}}
	for _, sa := range []*corev1.ServiceAccount{good, bare} {
		if err := cluster.Client().Create(t.Context(), sa); err != nil {
			t.Fatal(err)
		}
	}
	kubeconfig := cluster.Kubeconfig(t)
	var out strings.Builder
	if err := run(t.Context(), []string{"--kubeconfig", kubeconfig, "--service-account", namespace + "/app"},
		&out); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "assumed-role/app/"+namespace+".app"); n != 2 ||
		!strings.Contains(out.String(), "cached") {
		t.Error(out.String())
	}
	err := run(t.Context(), []string{"--kubeconfig", kubeconfig, "--service-account", namespace + "/bare"}, &out)
	if err == nil || !strings.Contains(err.Error(), `annotation "eks.amazonaws.com/role-arn" is missing`) {
		t.Errorf("without the annotation: %v", err)
	}
}

func TestFlagsThatCannotWork(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	for want, args := range map[string][]string{
		"namespace/name, not":                {"--kubeconfig", "x", "--service-account", "app"},
		"needs --service-account":            {"--kubeconfig", "x"},
		"needs --kubeconfig":                 {"--service-account", "a/b"},
		`read the kubeconfig "/nonexistent"`: {"--kubeconfig", "/nonexistent", "--service-account", "a/b"},
		"unexpected argument":                {"x"},
		`"nowhere" is not an AWS region`:     {"--region", "nowhere"},
	} {
		var out strings.Builder
		if err := run(t.Context(), args, &out); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", args, err, want)
		}
	}
}
