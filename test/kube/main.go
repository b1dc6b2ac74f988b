// Command kube builds the programs of a Kubernetes control plane from the versions that this module pins, and prints the
// folder that they are in. It builds once; afterwards it only prints.
//
//	go -C test/kube run .
//	go -C test/kube run . -node
//
// With -node it builds the programs of a node instead, kubelet, kube-scheduler and kube-proxy, into a folder of their own.
//
// The folder lies in the user's cache and is named after everything that shapes the programs. If KUBEBUILDER_ASSETS is
// set, that is printed instead of the control plane's folder.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

type program struct{ name, pkg string }

// controlPlane is built in this order, so that shared packages are compiled with the first program.
func controlPlane() []program {
	return []program{
		{"kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"},
		{"kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"},
		{"kubeadm", "k8s.io/kubernetes/cmd/kubeadm"},
		{"kubectl", "k8s.io/kubernetes/cmd/kubectl"},
		{"etcd", "go.etcd.io/etcd/server/v3"},
	}
}

// node lists the programs of a node.
func node() []program {
	return []program{
		{"kubelet", "k8s.io/kubernetes/cmd/kubelet"},
		{"kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"},
		{"kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ofNode := flag.Bool("node", false, "build the programs of a node")
	flag.Parse()
	dir, err := assets(ctx, *ofNode)
	if err != nil {
		fmt.Fprintln(os.Stderr, "kube:", err)
		os.Exit(1)
	}
	fmt.Println(dir)
}

func assets(ctx context.Context, ofNode bool) (string, error) {
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" && !ofNode {
		return dir, nil
	}
	dir, err := cacheDir(".")
	if err != nil {
		return "", err
	}
	programs := controlPlane()
	if ofNode {
		dir, programs = dir+"-node", node()
	}
	if complete(dir, programs) {
		return dir, nil
	}
	return dir, buildInto(ctx, dir, programs)
}

func complete(dir string, programs []program) bool {
	for _, p := range programs {
		if info, err := os.Stat(filepath.Join(dir, p.name)); err != nil || info.IsDir() {
			return false
		}
	}
	return true
}

// buildInto builds beside dir and renames at the end: two builds at once do no harm, the first one to end wins.
func buildInto(ctx context.Context, dir string, programs []program) error {
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
		fmt.Fprintf(os.Stderr, "kube: building %s (%s so far; all %d take minutes, once)\n", p.name, time.Since(start).Round(time.Second), len(programs))
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", stamp(version), "-o", filepath.Join(tmp, p.name), p.pkg)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("build %s: %w", p.name, err)
		}
	}
	if err := os.Rename(tmp, dir); err != nil && !complete(dir, programs) {
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
