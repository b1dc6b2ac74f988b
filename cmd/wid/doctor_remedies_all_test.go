package main

import (
	"encoding/json"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/workloadid/workloadid/internal/doctor"
	bootstrapdoctor "github.com/workloadid/workloadid/internal/doctor/bootstrap"
	podidentitydoctor "github.com/workloadid/workloadid/internal/doctor/podidentity"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/remedytest"
)

// parseWid has wid's own parser read words of a shell.
func parseWid(t *testing.T) func(words string) error {
	return func(words string) error {
		out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", `printf '%s\n' `+words).Output() //nolint:gosec // commands of the doctor
		if err != nil {
			return err
		}
		cmd, rest, err := newRoot().Find(strings.Split(strings.TrimSpace(string(out)), "\n"))
		if err == nil {
			err = cmd.ParseFlags(rest)
		}
		if err == nil {
			err = cmd.ValidateArgs(cmd.Flags().Args())
		}
		return err
	}
}

// The commands of all remedies, for a world with two contexts.
func TestRemediesOfPodIdentityAndBootstrap(t *testing.T) {
	const flags, other = "--kubeconfig 'a b/config' --context managed-0", "--context hub@1"
	for name, remedies := range map[string]map[string]doctor.Remedy{
		"pod identity": podidentitydoctor.Remedies(podidentitydoctor.Config{Namespace: "team-a", Pod: "reporting-0", Flags: flags}),
		"bootstrap":    bootstrapdoctor.Remedies(bootstrapdoctor.Config{Server: "10.0.0.1:6443", Token: "abcdef", Client: fake.NewFakeClient(), Flags: flags}),
	} {
		t.Run(name, func(t *testing.T) {
			remedytest.Check(t, slices.Collect(maps.Values(remedies)), []string{flags, other}, parseWid(t))
		})
	}
	remedytest.Unexamined(t, slices.Collect(maps.Values(bootstrapdoctor.Remedies(bootstrapdoctor.Config{Server: "10.0.0.1:6443", Token: "abcdef"}))))
}

// bootstrapFaults are a cluster and the commands that mend it.
type bootstrapFaults struct {
	t          *testing.T
	cluster    *kubetest.Cluster
	kubeconfig string
	token      string // what the administrator examines
}

func (b *bootstrapFaults) wid(arguments ...string) string {
	b.t.Helper()
	var out strings.Builder
	root := newRoot()
	root.SetArgs(arguments)
	root.SetOut(&out)
	root.SetErr(io.Discard)
	_ = root.ExecuteContext(b.t.Context()) // the doctor exits with its verdict; others show in the report
	return out.String()
}

func (b *bootstrapFaults) headline() *doctor.Finding {
	b.t.Helper()
	report := &doctor.Report{}
	if out := b.wid("doctor", "bootstrap", "--kubeconfig="+b.kubeconfig, "--token="+b.token, "-o=json"); json.Unmarshal([]byte(out), report) != nil {
		b.t.Fatalf("%s", out)
	}
	return report.Worst()
}

// mended runs the remedy of the headline, and waits until the fault is gone.
func (b *bootstrapFaults) mended(class string) {
	b.t.Helper()
	is := func() bool { f := b.headline(); return f != nil && f.Class == class }
	b.until("the headline is "+class, is)
	for _, command := range b.headline().Remedy.Commands {
		command = strings.Replace(command, "GROUP", "system:bootstrappers:workers", 1)
		if arguments, ok := strings.CutPrefix(command, "wid "); ok {
			if out := strings.TrimSpace(b.wid(strings.Fields(arguments)...)); strings.HasPrefix(arguments, "bootstrap create") {
				b.token = out
			}
			continue
		}
		if out, err := exec.CommandContext(b.t.Context(), "/bin/sh", "-c", filepath.Join(kubetest.Assets(b.t), command)).CombinedOutput(); err != nil { //nolint:gosec // a command of the doctor
			b.t.Errorf("%s: %v: %s", command, err, out)
		}
	}
	b.until(class+" is gone", func() bool { return !is() })
}

func (b *bootstrapFaults) until(what string, done func() bool) {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); !done(); {
		if time.Now().After(end) {
			b.t.Fatalf("still not so: %s; %+v", what, b.headline())
		}
	}
}

// spoil changes the Secret of the token.
func (b *bootstrapFaults) spoil(change func(s *corev1.Secret)) {
	b.t.Helper()
	id, _, _ := strings.Cut(b.token, ".")
	secret := &corev1.Secret{}
	err := b.cluster.Client().Get(b.t.Context(), client.ObjectKey{Namespace: "kube-system", Name: "bootstrap-token-" + id}, secret)
	if err == nil {
		change(secret)
		err = b.cluster.Client().Update(b.t.Context(), secret)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// Each fault of a cluster to join is gone once the printed commands have run.
func TestBootstrapRemedies(t *testing.T) {
	cluster := kubetest.StartNew(t)
	b := &bootstrapFaults{t: t, cluster: cluster, kubeconfig: cluster.Kubeconfig(t), token: "abcdef"}
	b.mended("NotPublished")
	if err := cluster.Client().DeleteAllOf(t.Context(), &rbacv1.RoleBinding{}, client.InNamespace("kube-public")); err != nil {
		t.Fatal(err)
	}
	b.mended("AnonymousForbidden")
	b.mended("TokenUnusable")
	b.spoil(func(s *corev1.Secret) { s.Data["expiration"] = []byte("2020-01-01T00:00:00Z") })
	b.mended("TokenUnusable")
	b.spoil(func(s *corev1.Secret) { s.Data["usage-bootstrap-signing"] = []byte("no") })
	b.mended("TokenUnusable")
	b.spoil(func(s *corev1.Secret) { s.Data["token-secret"] = []byte("aaaaaaaaaaaaaaaa") })
	b.mended("TokenUnusable")
	b.spoil(func(s *corev1.Secret) { s.Data["token-id"] = []byte("fedcba") })
	b.mended("TokenUnusable")
	if f := b.headline(); f == nil || f.Class != "NotSigned" { // no signer runs here
		t.Errorf("%+v", f)
	}
}
