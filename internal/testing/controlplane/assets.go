package controlplane

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Assets returns the folder of the programs. It builds them on first use, from
// the source tree of this module, and writes its progress. KUBEBUILDER_ASSETS
// wins.
func Assets(ctx context.Context, progress io.Writer) (string, error) {
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		return dir, nil
	}
	root, err := output(ctx, progress, ".", "go", "list", "-m", "-f", "{{.Dir}}", "github.com/workloadid/workloadid")
	if err != nil {
		return "", fmt.Errorf("find the source tree of workloadid: %w: run this in a clone of it, or set KUBEBUILDER_ASSETS",
			err)
	}
	tmp, err := os.MkdirTemp("", "controlplane-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // a temporary file of 3 MB
	// Not "go run", which ignores an interrupt: the builder removes what it has
	// not finished.
	builder, source := filepath.Join(tmp, "kube"), filepath.Join(root, "test", "kube")
	dir := ""
	if _, err = output(ctx, progress, source, "go", "build", "-o", builder, "."); err == nil {
		dir, err = output(ctx, progress, source, builder)
	}
	if err != nil {
		return "", fmt.Errorf("build the control plane: %w", cmp.Or(context.Cause(ctx), err))
	}
	return dir, nil
}

func output(ctx context.Context, progress io.Writer, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // the go command, and what it has built
	cmd.Dir, cmd.Stderr = dir, progress
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(os.Interrupt) }, 10*time.Second
	out, err := cmd.Output()
	return string(bytes.TrimSpace(out)), err
}
