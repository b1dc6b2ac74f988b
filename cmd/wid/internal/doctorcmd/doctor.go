// Package doctorcmd is wid doctor.
package doctorcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
)

const (
	doctorCodes = "  0  all passed\n  1  something failed\n  2  wrong usage\n  3  nothing failed, but something is unknown or doubtful"
	// silence is the time after which a check that still runs is named on
	// standard error.
	silence = 2 * time.Second
)

// examiner runs the checks of wid doctor or of one of its subcommands, and
// prints the report.
type examiner struct {
	output              *cli.Output
	verbose, showPolicy bool
	timeout             time.Duration
	// reword changes a finding for people at a command line. Optional.
	reword func(f *doctor.Finding)

	waiting waiting
	stderr  io.Writer
	clients *cli.Clients
}

func (x *examiner) addTo(cmd *cobra.Command) {
	cli.ExitCodes(cmd, doctorCodes)
	x.output = cli.OutputFlag(cmd, "text", "json", "yaml")
	cmd.Flags().BoolVar(&x.verbose, "verbose", false, "list every check")
}

// addPolicyTo is for commands whose remedies may change what a cloud trusts.
func (x *examiner) addPolicyTo(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&x.showPolicy, "show-policy", false, "also print the commands that make a cloud trust more")
}

// addTimeoutTo is for commands without the flags of an identity.
func (x *examiner) addTimeoutTo(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&x.timeout, "timeout", cli.DefaultTimeout, "time for all checks together, a minute at most")
}

func (x *examiner) of(cluster string) doctor.Examination {
	return doctor.Examination{Cluster: cluster, Timeout: x.timeout, Progress: x.waiting.begin, ShowPolicy: x.showPolicy}
}

// run prints the report, also if the checks were interrupted. examine returns
// an error only if it began no check.
func (x *examiner) run(cmd *cobra.Command, examine func(ctx context.Context) (*doctor.Report, error)) error {
	if x.timeout <= 0 {
		return cli.Usagef("--timeout has to be more than 0, not %s", x.timeout)
	}
	x.clients = cmp.Or(x.clients, &cli.Clients{})
	x.stderr, x.waiting.out = cmd.ErrOrStderr(), cmd.ErrOrStderr()
	ctx, cancel := context.WithTimeout(cmd.Context(), x.timeout)
	defer cancel()
	// What ignores its context, such as a read from a pipe, is left behind. The
	// engine abandons a check earlier.
	report, ok, err := cli.WithGrace(ctx, 2*cli.Grace, examine)
	x.waiting.stop()
	x.clients.End()
	if !ok {
		err = ctx.Err()
	}
	if err != nil {
		return x.asUsage(err)
	}
	for i := range report.Findings {
		x.finish(&report.Findings[i])
	}
	content, err := x.encode(cmd, report)
	if err == nil {
		_, err = cmd.OutOrStdout().Write(content)
	}
	code := report.ExitCode()
	if cmd.Context().Err() != nil {
		code = cli.ExitInterrupted
	}
	if err != nil || code == doctor.ExitPass {
		return err
	}
	return cli.ExitStatus(code)
}

// asUsage makes every mistake before the first check one of usage, because 1
// and 3 are verdicts.
func (x *examiner) asUsage(err error) error {
	var usage *cli.UsageError
	switch {
	case errors.As(err, &usage):
		return err
	case errors.Is(err, context.Canceled):
		return cli.ErrInterrupted
	case errors.Is(err, context.DeadlineExceeded):
		_, _ = fmt.Fprintln(x.stderr, "wid: gave up waiting for a file, a program or the network") // as main does
		return cli.ExitStatus(doctor.ExitUncertain)
	}
	return cli.Usagef("%s", x.clients.Clean(err.Error()))
}

// finish removes what clients of the kubeconfig have sent, which an API server
// may repeat.
func (x *examiner) finish(f *doctor.Finding) {
	if x.reword != nil {
		x.reword(f)
	}
	f.Rewrite(x.clients.Clean, same)
}

func (x *examiner) encode(cmd *cobra.Command, report *doctor.Report) ([]byte, error) {
	if x.output.Format != "text" {
		return x.output.Encode(report, nil)
	}
	return []byte(report.Text(doctor.TextOptions{Width: cli.WidthOf(cmd), Verbose: x.verbose,
		PolicyHint: cmd.CommandPath() + " … --show-policy"})), nil
}

// waiting names each check that takes long. Its methods are safe for concurrent
// use.
type waiting struct {
	out   io.Writer
	timer atomic.Pointer[time.Timer]
}

func (w *waiting) begin(c doctor.Check) {
	w.stop()
	w.timer.Store(time.AfterFunc(silence, func() {
		_, _ = fmt.Fprintf(w.out, "waiting for %s …\n", c.Title) // nothing depends on it
	}))
}

func (w *waiting) stop() {
	if timer := w.timer.Load(); timer != nil {
		timer.Stop()
	}
}
