package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	module = "github.com/workloadid/workloadid/"
	assets = "KUBEBUILDER_ASSETS"
)

// pkg is a package as "go list -json" prints it.
type pkg struct {
	ImportPath                         string
	Dir                                string
	Imports, TestImports, XTestImports []string
	TestGoFiles, XTestGoFiles          []string
}

func listPackages(ctx context.Context, root string) (map[string]*pkg, error) {
	const fields = "ImportPath,Dir,Imports,TestImports,XTestImports,TestGoFiles,XTestGoFiles"
	cmd := exec.CommandContext(ctx, "go", "list", "-json="+fields, "./...")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	packages := map[string]*pkg{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		p := &pkg{}
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, err
		}
		packages[p.ImportPath] = p
	}
}

func (p *pkg) testFiles() int { return len(p.TestGoFiles) + len(p.XTestGoFiles) }

func (p *pkg) imports(path string) bool {
	return slices.Contains(slices.Concat(p.Imports, p.TestImports, p.XTestImports), path)
}

// controlPlane is how the Makefile tells the tests that need one.
var controlPlane = regexp.MustCompile("internal/testing/(kubetest|regtest)$")

func (p *pkg) needsControlPlane() bool {
	return slices.ContainsFunc(slices.Concat(p.TestImports, p.XTestImports), controlPlane.MatchString)
}

// step is a run of the tests of a package.
type step struct {
	of           string
	test         string // empty for all
	controlPlane bool
}

// steps are in the order in which they are tried, the quick ones first.
func (r *runner) steps(of *pkg, recorded result) (steps []step) {
	has := os.Getenv(assets) != ""
	if path, test, _ := strings.Cut(recorded.by, " "); test != "" && test != timedOut && test != panicked {
		if p := cmp.Or(r.packages[module+path], r.packages[path]); p != nil {
			steps = append(steps, step{p.ImportPath, test, has})
		}
	}
	add := func(p *pkg, controlPlane bool) {
		if p.testFiles() > 0 {
			steps = append(steps, step{of: p.ImportPath, controlPlane: controlPlane})
		}
	}
	add(of, false)
	if has && of.needsControlPlane() {
		add(of, true)
	}
	if r.packageOnly {
		return steps
	}
	var importers []*pkg
	for _, p := range r.packages {
		if p != of && p.imports(of.ImportPath) && (has || !p.needsControlPlane()) {
			importers = append(importers, p)
		}
	}
	slices.SortFunc(importers, func(a, b *pkg) int {
		return cmp.Or(a.testFiles()-b.testFiles(), strings.Compare(a.ImportPath, b.ImportPath))
	})
	for _, controlPlane := range []bool{false, true} {
		for _, p := range importers {
			if p.needsControlPlane() == controlPlane {
				add(p, controlPlane)
			}
		}
	}
	return steps
}

// try changes the file of m, and runs tests until one fails.
func (r *runner) try(ctx context.Context, m mutant) (result, error) {
	path := filepath.Join(r.root, filepath.FromSlash(m.file))
	source, err := os.ReadFile(path) //nolint:gosec // named by the table
	if err != nil {
		return result{}, err
	}
	changed, err := m.apply(source)
	if err != nil {
		return result{}, err
	}
	var of *pkg
	for _, p := range r.packages {
		if p.Dir == filepath.Dir(path) {
			of = p
		}
	}
	if of == nil {
		return result{}, fmt.Errorf("%s lies in no package of the main module", m.file)
	}
	temp, err := os.MkdirTemp(r.temp, "")
	if err != nil {
		return result{}, err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	overlay, err := writeOverlay(temp, path, changed)
	if err != nil {
		return result{}, err
	}
	if out, err := r.command(ctx, temp, false, "build", "-overlay", overlay, of.ImportPath); err != nil {
		return result{}, fmt.Errorf("does not compile: %s", bytes.TrimSpace(out))
	}
	if r.check {
		return result{what: built}, nil
	}
	for _, s := range r.steps(of, r.recorded[m.id]) {
		args := []string{"test", "-overlay", overlay, "-json", "-failfast", "-vet=off", "-ldflags=-w",
			"-timeout", r.timeout.String()}
		if s.test != "" {
			args = append(args, "-run", "^"+s.test+"$")
		}
		out, _ := r.command(ctx, temp, s.controlPlane, append(args, s.of)...) // the output says whether a test failed
		by, err := failure(out)
		if err != nil {
			return result{}, fmt.Errorf("test %s: %w", s.of, err)
		}
		if by != "" {
			return result{caught, strings.TrimPrefix(s.of, module) + " " + by}, nil
		}
	}
	return result{what: survived}, nil
}

func writeOverlay(temp, path string, changed []byte) (overlay string, err error) {
	file := filepath.Join(temp, "mutant.go")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {path: file}})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(temp, "overlay.json")
	return overlay, cmp.Or(os.WriteFile(file, changed, 0o600), os.WriteFile(overlay, replace, 0o600))
}

// command runs the go command. It ends the processes that a test left behind,
// and keeps their temporary files in temp.
func (r *runner) command(ctx context.Context, temp string, controlPlane bool, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // our own arguments
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	if !controlPlane {
		cmd.Env = slices.DeleteFunc(cmd.Env, func(v string) bool { return strings.HasPrefix(v, assets+"=") })
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	end := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel, cmd.WaitDelay = end, 10*time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if cmd.Process != nil {
		_ = end()
	}
	return out.Bytes(), err
}

// A test that ends without the name of a test.
const (
	timedOut = "timeout"
	panicked = "panic" // or exited
)

// failure reads the output of "go test -json" for one package. It returns the
// first top-level test that failed, timedOut, panicked, or "" if none failed.
// A package that does not build has not failed.
func failure(out []byte) (by string, err error) {
	test, ended := "", ""
	for line := range bytes.Lines(out) {
		var e struct{ Action, Test, Output, FailedBuild string }
		if json.Unmarshal(line, &e) != nil {
			continue // a message of the go command
		}
		switch {
		case strings.HasPrefix(e.Output, "panic: test timed out after "):
			return timedOut, nil
		case e.FailedBuild != "":
			return "", nil
		case e.Action == "fail" && e.Test != "" && test == "":
			test, _, _ = strings.Cut(e.Test, "/")
		case e.Test == "" && slices.Contains([]string{"pass", "fail", "skip"}, e.Action):
			ended = e.Action
		}
	}
	switch ended {
	case "":
		return "", fmt.Errorf("go test gave no result: %s", bytes.TrimSpace(out))
	case "fail":
		return cmp.Or(test, panicked), nil
	}
	return "", nil
}
