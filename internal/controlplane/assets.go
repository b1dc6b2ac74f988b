package controlplane

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// Assets returns the folder of the programs. It builds them on first use, from the source tree of this module, and writes its
// progress. KUBEBUILDER_ASSETS wins.
func Assets(ctx context.Context, progress io.Writer) (string, error) {
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		return dir, nil
	}
	root, err := output(ctx, progress, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/workloadid/workloadid")
	if err != nil {
		return "", fmt.Errorf("find the source tree of workloadid: %w: run this in a clone of it, or set KUBEBUILDER_ASSETS", err)
	}
	dir, err := output(ctx, progress, "go", "-C", root+"/test/kube", "run", ".")
	if err != nil {
		return "", fmt.Errorf("build the control plane: %w", err)
	}
	return dir, nil
}

func output(ctx context.Context, progress io.Writer, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = progress
	// An interrupted build removes its files.
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(os.Interrupt) }, 10*time.Second
	out, err := cmd.Output()
	return string(bytes.TrimSpace(out)), err
}
