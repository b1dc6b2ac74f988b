// Command registration plays how a managed cluster joins a hub, on two real control planes that it starts.
//
//	go run ./examples/registration
//	go run ./examples/registration -auth=aws-irsa
//
// hub.go and agent.go embed the packages, as a controller of yours would. The other files play administrators, clusters and AWS.
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
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/internal/testing/controlplane"
	"github.com/workloadid/workloadid/internal/testing/scenario"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
)

// demo plays a join between two control planes. Its steps are in steps.go and addon.go, for AWS in aws.go.
type demo struct {
	scenario.Scenario
	hub, managed *controlplane.Cluster
	admin, local client.Client // of the administrators of hub and managed cluster
	agent        *agent.Agent
	own          client.Client // with the agent's own credential
	token        bootstrap.Token
	accepted     time.Time

	hubDriver   func(ctrl.Manager) (registration.HubDriver, error)
	driver      registration.Driver // of the agent
	addOnDriver registration.Driver // of its add-ons; nil: none are registered
	account     string              // its ServiceAccount
	addOn       client.Client       // with the add-on's own credential
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "registration:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, log io.Writer) (err error) {
	fs := flag.NewFlagSet("registration", flag.ContinueOnError)
	fs.SetOutput(out)
	auth := fs.String("auth", registration.AuthTypeCSR, "auth type of the cluster, "+registration.AuthTypeCSR+" or "+registration.AuthTypeAWS)
	if err := fs.Parse(args); err != nil {
		return err
	}
	d := &demo{Scenario: scenario.Scenario{Printer: scenario.Printer{Out: out}}}
	steps, ok := map[string]func() []func(context.Context) error{registration.AuthTypeCSR: d.steps, registration.AuthTypeAWS: (&awsDemo{demo: d}).steps}[*auth]
	if !ok || fs.NArg() > 0 {
		return fmt.Errorf("use -auth=%s or -auth=%s and no arguments, not %q", registration.AuthTypeCSR, registration.AuthTypeAWS, args)
	}
	// Hub and agent also log what the demo provokes, so their errors show only if the demo fails.
	var kept bytes.Buffer
	logTo(&kept)
	if err = d.Play(ctx, steps()...); err != nil && ctx.Err() == nil {
		_, _ = kept.WriteTo(log)
	}
	return err
}

// logTo sends the errors that controller-runtime and client-go log to a writer, as text.
func logTo(log io.Writer) {
	logger := logr.FromSlogHandler(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelError}))
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
}
