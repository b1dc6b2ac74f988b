package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/document"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

// The tutorial leads from nothing to a controller that acts for two tenants.
// The blocks of the shell run as printed, with an API server in place of kind.
// Those without a language need a container runtime or the network.
func TestTutorial(t *testing.T) {
	t.Parallel()
	kubetest.Assets(t)
	w := newIssuerAdministrator(t)
	if err := os.CopyFS(filepath.Join(w.home, "workloadid", "config"),
		os.DirFS(filepath.Join("..", "..", "config"))); err != nil {
		t.Fatal(err)
	}
	rolesBefore := w.cloud.AWS().Roles()
	variables, out := "", ""
	for _, b := range document.Read(t, "docs/tutorial.md").Blocks("sh", "text") {
		switch {
		case b.Language == "text" && out != b.Text:
			t.Errorf("%s: got %q, want %q", b.Heading, out, b.Text)
		case b.Language == "text":
		case strings.HasPrefix(b.Text, "export "):
			variables = b.Text
		case strings.HasPrefix(b.Text, "kubectl events"):
			kubetest.Eventually(t, "an Event says that AWS refuses", func() bool {
				return strings.Contains(w.sh(b.Text).stdout, "Not authorized to perform sts:AssumeRoleWithWebIdentity")
			})
		default:
			out = w.sh(variables + b.Text).stdout
		}
		switch {
		case strings.Contains(b.Text, "> kind.yaml"):
			w.start(w.kindFlags()...)
		case strings.Contains(b.Text, "kubectl apply -k"):
			w.startController()
		}
	}
	if roles := w.cloud.AWS().Roles(); !slices.Equal(roles, rolesBefore) {
		t.Errorf("got the roles %q after cleaning up, want %q", roles, rolesBefore)
	}
}

// kindFlags returns the flags that kind gives the API server.
func (w *issuerEnvironment) kindFlags() (flags []kubetest.Flag) {
	w.t.Helper()
	content, err := os.ReadFile(filepath.Join(w.home, "kind.yaml"))
	var config struct {
		APIVersion, Kind     string
		Nodes                []struct{ Role, Image string }
		KubeadmConfigPatches []string
	}
	if err == nil {
		err = yaml.UnmarshalStrict(content, &config)
	}
	if err != nil || config.APIVersion != "kind.x-k8s.io/v1alpha4" || config.Kind != "Cluster" ||
		len(config.KubeadmConfigPatches) != 1 {
		w.t.Fatalf("%+v, %v", config, err)
	}
	for name, values := range kubeadmFlags(w.t, config.KubeadmConfigPatches[0]) {
		flags = append(flags, kubetest.Flag{Name: name, Value: values[0]})
	}
	return flags
}

// startController builds the example and runs it with the rights of its
// ServiceAccount, until the test ends.
func (w *issuerEnvironment) startController() {
	w.t.Helper()
	binary := filepath.Join(w.home, "controller")
	build := exec.CommandContext(w.t.Context(), "go", "build", "-buildvcs=false", "-ldflags=-w", "-o", binary,
		"../../examples/controller") //nolint:gosec // arguments of this test
	if out, err := build.CombinedOutput(); err != nil {
		w.t.Fatalf("build the controller: %v\n%s", err, out)
	}
	var log bytes.Buffer
	cmd := exec.CommandContext(w.t.Context(), binary, "--metrics-bind-address=0",
		"--health-probe-bind-address=0") //nolint:gosec // a program of this tree
	cmd.Env = slices.Concat(os.Environ(), w.env, []string{"AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY=",
		"KUBECONFIG=" + w.cluster.AccountKubeconfig(w.t, "workloadid-example", "controller")})
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = cmd.Wait() // the end of the test's context kills it
		if w.t.Failed() {
			w.t.Logf("the controller's log:\n%s", &log)
		}
	})
}

// publish lets anyone read the bucket, if the policy says so for both documents
// of an issuer and nothing keeps it from being public.
func (w *issuerEnvironment) publish(bucket, content string) {
	w.t.Helper()
	var policy struct {
		Statement []struct {
			Effect, Principal, Action string
			Resource                  []string
		}
	}
	if err := json.Unmarshal([]byte(content), &policy); err != nil || len(policy.Statement) != 1 {
		w.t.Fatalf("%s, %v", content, err)
	}
	s, objects := policy.Statement[0], "arn:aws:s3:::"+bucket+"/cluster-1/"
	if s.Effect != "Allow" || s.Principal != "*" || s.Action != "s3:GetObject" ||
		!slices.Equal(s.Resource, []string{objects + ".well-known/*", objects + "openid/*"}) {
		w.t.Fatalf("got the policy %+v, want one that lets anyone read both documents", s)
	}
	calls, err := os.ReadFile(filepath.Join(w.home, "calls"))
	if err != nil || !strings.Contains(string(calls), "BlockPublicPolicy=false,RestrictPublicBuckets=false") {
		w.t.Fatalf("got the calls\n%s (%v), want one that lets the bucket be public", calls, err)
	}
	w.cloud.AWS().SetBucket(bucket, cloudtest.S3Bucket{Account: account, Region: "eu-central-1", Public: true})
}
