// Command kube builds the programs of a Kubernetes control plane from the
// versions that this module pins, and prints the folder that they are in. It
// builds once; afterwards it only prints.
//
//	go -C test/kube run .
//	go -C test/kube run . -node
//	KUBE=1.36 go -C test/kube run .
//
// With -node it builds the programs of a node instead, kubelet, kube-scheduler
// and kube-proxy, into a folder of their own. Without KUBE the versions come
// from go.mod, with KUBE=1.36 from kube-1.36.mod.
//
// The folder lies in the user's cache and is named after everything that shapes
// the programs. If KUBEBUILDER_ASSETS is set, that is printed instead of the
// control plane's folder.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"strings"
)

type program struct{ name, pkg string }

// controlPlane lists the programs of a control plane, and of the command lines
// beside it.
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
	modFile, err := modFile(".", os.Getenv("KUBE"))
	if err != nil {
		return "", err
	}
	dir, err := cacheDir(modFile)
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
	return dir, buildInto(ctx, modFile, dir, programs)
}

// modFile returns the file that pins the versions of a minor version of
// Kubernetes; "" is the module's own. A minor version without a file of its own
// has to be that of go.mod.
func modFile(dir, minor string) (string, error) {
	own := filepath.Join(dir, "go.mod")
	if minor == "" {
		return own, nil
	}
	file := filepath.Join(dir, "kube-"+minor+".mod")
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	content, err := os.ReadFile(own) //nolint:gosec // a file of this module
	if err != nil {
		return "", err
	}
	if !bytes.Contains(content, []byte("k8s.io/kubernetes v"+minor+".")) {
		return "", fmt.Errorf("KUBE=%q: neither go.mod nor %s pins that version", minor, file)
	}
	return own, nil
}

func complete(dir string, programs []program) bool {
	for _, p := range programs {
		if info, err := os.Stat(filepath.Join(dir, p.name)); err != nil || info.IsDir() {
			return false
		}
	}
	return true
}

// buildInto builds beside dir and renames at the end: two builds at once do no
// harm, the first one to end wins. One go build compiles what the programs
// share once, and links one program while it compiles the next.
func buildInto(ctx context.Context, modFile, dir string, programs []program) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".building-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // it is gone already if all went well
	version, err := output(ctx, "go", "list", "-modfile="+modFile, "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	if err != nil {
		return err
	}
	args := []string{"build", "-modfile=" + modFile, "-trimpath", "-ldflags", stamp(version), "-o",
		tmp + string(filepath.Separator)}
	for _, p := range programs {
		args = append(args, p.pkg)
	}
	fmt.Fprintf(os.Stderr, "kube: building %d programs of Kubernetes %s (takes minutes, once)\n", len(programs), version)
	build := exec.CommandContext(ctx, "go", args...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build Kubernetes %s: %w", version, err)
	}
	for _, p := range programs {
		if err := os.Rename(filepath.Join(tmp, p.built()), filepath.Join(tmp, p.name)); err != nil {
			return err
		}
	}
	if err := os.Rename(tmp, dir); err != nil && !complete(dir, programs) {
		return err
	}
	return nil
}

// built is the name that go build gives the program: the package's last element
// that is no major version.
func (p program) built() string {
	if base := path.Base(p.pkg); base != "v3" {
		return base
	}
	return path.Base(path.Dir(p.pkg))
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
