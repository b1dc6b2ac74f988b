// Command podidentity plays how a pod gets AWS credentials through an
// IAMBinding and loses them. It starts a real API server, and simulates AWS.
//
//	go run ./examples/podidentity
//
// server.go, webhook.go and sidecar.go embed the packages, as a program of
// yours would.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/workloadid/workloadid/internal/testing/controlplane"
	"github.com/workloadid/workloadid/internal/testing/podscenario"
)

// demo embeds server, webhook and sidecar. The scenario plays everything around
// them.
type demo struct{ podscenario.Scenario }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "podidentity:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, log io.Writer) (err error) {
	if len(args) == 1 && args[0] == appCommand {
		return runApp(ctx, out)
	}
	fs := flag.NewFlagSet("podidentity", flag.ContinueOnError)
	fs.SetOutput(out)
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: use none", fs.Arg(0))
	}
	d := &demo{}
	d.Out, d.RunServer, d.RunWebhook = out, d.runServer, d.runWebhook
	// Server and webhook also log what the demo provokes, so their errors show
	// only if the demo fails.
	var kept bytes.Buffer
	logTo(&kept)
	if err = d.Play(ctx, d.start, d.Install, d.Start, d.Allow, d.Bind, d.Inject, d.call, d.RefuseRole, d.Conflict,
		d.End); err != nil && ctx.Err() == nil {
		_, _ = kept.WriteTo(log)
	}
	return err
}

func (d *demo) start(ctx context.Context) error {
	d.Say(
		"A pod gets AWS credentials through an IAMBinding. Everything is embedded: a real API server with etcd runs on this machine, and AWS is simulated.")
	d.Say("Starting a control plane…")
	assets, err := controlplane.Assets(ctx, os.Stderr)
	if err != nil {
		return err
	}
	return d.SetUp(assets)
}

// logTo sends the errors that controller-runtime and client-go log to a writer,
// as text.
func logTo(log io.Writer) {
	logger := logr.FromSlogHandler(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelError}))
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
}
