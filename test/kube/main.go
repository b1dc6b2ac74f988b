// Command kube builds the programs of a Kubernetes control plane from the versions that this module pins, and prints the
// folder that they are in. It builds once; afterwards it only prints.
//
//	go -C test/kube run .
//
// The folder lies in the user's cache and is named after everything that shapes the programs. If KUBEBUILDER_ASSETS is
// set, that is printed instead.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

// programs are built in this order, so that what several have in common is compiled with the first.
var programs = [...]struct{ name, pkg string }{
	{"kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"},
	{"kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"},
	{"kubeadm", "k8s.io/kubernetes/cmd/kubeadm"},
	{"kubectl", "k8s.io/kubernetes/cmd/kubectl"},
	{"etcd", "go.etcd.io/etcd/server/v3"},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dir, err := assets(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "kube:", err)
		os.Exit(1)
	}
	fmt.Println(dir)
}

func assets(ctx context.Context) (string, error) {
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		return dir, nil
	}
	dir, err := cacheDir(".")
	if err != nil || complete(dir) {
		return dir, err
	}
	return dir, buildInto(ctx, dir)
}

func complete(dir string) bool {
	for _, p := range programs {
		if info, err := os.Stat(filepath.Join(dir, p.name)); err != nil || info.IsDir() {
			return false
		}
	}
	return true
}

// buildInto builds beside dir and renames at the end: two builds at once do no harm, the first one to end wins.
func buildInto(ctx context.Context, dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".building-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // it is gone already if all went well
	version, err := output(ctx, "go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	if err != nil {
		return err
	}
	start := time.Now()
	for _, p := range programs {
		fmt.Fprintf(os.Stderr, "kube: building %s (%s so far; all five take about six minutes, once)\n", p.name, time.Since(start).Round(time.Second))
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", stamp(version), "-o", filepath.Join(tmp, p.name), p.pkg)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("build %s: %w", p.name, err)
		}
	}
	if err := os.Rename(tmp, dir); err != nil && !complete(dir) {
		return err
	}
	return nil
}

// stamp tells the programs their version, which Kubernetes' own build does too.
func stamp(version string) string {
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	const v = "k8s.io/component-base/version."
	return fmt.Sprintf("-s -w -X %sgitMajor=%s -X %sgitMinor=%s -X %sgitVersion=%s", v, major, v, minor, v, version)
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}
