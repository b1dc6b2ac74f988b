//go:build linux

package workloadid_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// programs returns the folders that match a pattern and hold a program.
func programs(t *testing.T, pattern string) (dirs []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(pattern, "main.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %q, %v", pattern, files, err)
	}
	for _, file := range files {
		dirs = append(dirs, filepath.Dir(file))
	}
	return dirs
}

// installed returns the folders of the programs that clusters run: those under
// cmd, and those of the examples that have a manifest.
func installed(t *testing.T) []string {
	t.Helper()
	dirs := programs(t, "cmd/*")
	for _, dir := range programs(t, "examples/*") {
		if manifests, err := filepath.Glob(filepath.Join(dir, "*.yaml")); err != nil {
			t.Fatal(err)
		} else if len(manifests) > 0 {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// goRun runs the go command without cgo, which makes binaries static.
func goRun(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...) //nolint:gosec // arguments of this test
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("go %q: %v\n%s", args, err, out)
	}
}

func TestInstalledProgramsLinkNoTestHelpers(t *testing.T) {
	for _, dir := range installed(t) {
		t.Run(dir, func(t *testing.T) {
			const move = "move the demonstration to a program under examples, which embeds the packages: "
			refuse(t, module+"/"+dir, move+"a fake cloud is for tests", module+"/cloudtest", module+"/auth/authtest")
			refuse(t, module+"/"+dir, move+"its init creates a folder, and panics on the read-only file system of a pod",
				"sigs.k8s.io/controller-runtime/pkg/internal/testing/addr")
			refuse(t, module+"/"+dir, "move the helper of tests into a file _test.go", "testing", module+"/internal/testing/")
		})
	}
}

// inNamespace marks the process that runs in a mount namespace of its own. Its
// value is the folder of the binaries.
const inNamespace = "WORKLOADID_TEST_BINARIES"

// On a node, a program has a read-only file system that holds nothing but
// itself.
func TestProgramsStartOnAReadOnlyFileSystem(t *testing.T) {
	if dir := os.Getenv(inNamespace); dir != "" {
		startReadOnly(t, dir)
		return
	}
	dir := t.TempDir()
	goRun(t, ".", "build", "-ldflags=-w", "-o", dir, "./cmd/...")
	user := syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}}
	out, err := again(t, dir, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS})
	if errors.Is(err, syscall.EPERM) { // not root
		out, err = again(t, dir, &user)
	}
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Fatalf("in a new mount namespace, which needs root or user namespaces: %v\n%s", err, out)
	}
}

// again runs this test in new namespaces.
func again(t *testing.T, binaries string, attr *syscall.SysProcAttr) ([]byte, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$",
		"-test.v") //nolint:gosec // this test itself
	cmd.Env, cmd.SysProcAttr = append(os.Environ(), inNamespace+"="+binaries), attr
	return cmd.CombinedOutput()
}

// startReadOnly starts each program with the folder of the binaries as its
// read-only file system.
func startReadOnly(t *testing.T, dir string) {
	const readOnly = syscall.MS_BIND | syscall.MS_REMOUNT | syscall.MS_RDONLY | syscall.MS_NOSUID | syscall.MS_NODEV
	// the mounts below stay in this namespace
	if err := errors.Join(syscall.Mount("", "/", "", syscall.MS_PRIVATE|syscall.MS_REC, ""),
		syscall.Mount(dir, dir, "", syscall.MS_BIND, ""), syscall.Mount("", dir, "", readOnly, "")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); !errors.Is(err, syscall.EROFS) {
		t.Fatalf("the file system is not read-only: %v", err)
	}
	for _, source := range programs(t, "cmd/*") {
		name := filepath.Base(source)
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "/"+name, "--help")
			cmd.Dir, cmd.Env, cmd.SysProcAttr = "/", []string{}, &syscall.SysProcAttr{Chroot: dir}
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(strings.ToLower(string(out)), "usage") {
				t.Errorf("--help: got the error %v, want usage:\n%s", err, out)
			}
		})
	}
}

// Users copy these programs and change them.
func TestProgramsToCopyCompileInAnotherModule(t *testing.T) {
	dir := t.TempDir()
	writeModule(t, dir)
	for _, source := range []string{"cmd/wid-hub", "cmd/wid-agent", "cmd/iam-credentials-provider",
		"cmd/iam-credentials-pod", "examples/controller", "examples/join", "examples/approve"} {
		files, err := filepath.Glob(filepath.Join(source, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %q, %v", source, files, err)
		}
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				copyFile(t, file, filepath.Join(dir, filepath.Base(source), filepath.Base(file)))
			}
		}
	}
	goRun(t, dir, "list", "-export", "-mod=mod", "./...") // compiles as build does, and does not link
}

// writeModule writes a module that requires this tree, and everything else in
// the same versions.
func writeModule(t *testing.T, dir string) {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"go.mod", "go.sum"} {
		copyFile(t, file, filepath.Join(dir, file))
	}
	goRun(t, dir, "mod", "edit", "-module=example.com/copied", "-require="+module+"@v0.0.0", "-replace="+module+"="+here)
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from) //nolint:gosec // a file of this tree
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, content, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
}
