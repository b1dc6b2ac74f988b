// Command registration plays how a managed cluster joins a hub, on two real
// control planes that it starts.
//
//	go run ./examples/registration
//
// It runs in the environment of the tests of registration, so it is a test
// inside, and not a program to copy: those are cmd/wid-hub and cmd/wid-agent.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/workloadid/workloadid/internal/testing/controlplane"
	"github.com/workloadid/workloadid/internal/testing/scenario"
)

func main() {
	if len(os.Args) > 1 {
		fmt.Fprintf(os.Stderr, "registration: use no arguments, not %q\n", os.Args[1:])
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// Hub and agent log what the demo provokes.
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	testing.Init()
	testing.Main(func(_, _ string) (bool, error) { return true, nil },
		[]testing.InternalTest{{Name: "registration", F: func(t *testing.T) { run(ctx, t, os.Stdout) }}}, nil, nil)
}

// run plays the demo. It removes everything at its end, also when ctx ends.
func run(ctx context.Context, t *testing.T, out io.Writer) {
	d := &demo{ctx: ctx, Printer: scenario.Printer{Out: out}}
	d.Say("A cluster joins a hub by certificate, and an add-on by token. Everything below is real: API servers, etcd, " +
		"RBAC, certificates and tokens. Starting two control planes…")
	assets, err := controlplane.Assets(ctx, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBEBUILDER_ASSETS", assets)
	t.Cleanup(func() { d.Say("All files are removed.") })
	d.play(t)
	d.Say("Stopping everything.")
}
