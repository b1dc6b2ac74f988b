package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth/diagnose"
)

// examiner are the flags that the doctor's targets without a provider share.
type examiner struct {
	output  string
	skip    []string
	timeout time.Duration
	checks  []diagnose.Check
}

const doctorCodes = "Exit codes: 0 all passed, 1 something failed, 2 wrong usage, 3 nothing failed, but something is unclear."

func (t *examiner) addTo(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&t.output, "output", "o", "text", "text or json")
	f.StringSliceVar(&t.skip, "skip", nil, "names of checks to leave out")
	f.DurationVar(&t.timeout, "timeout", defaultTimeout, "time for everything together, a minute at most")
}

// run is that of the doctor: a whole report or nothing, within the time.
func (t *examiner) run(cmd *cobra.Command, examine func(ctx context.Context) (*diagnose.Report, error)) error {
	d := &doctor{output: t.output, skip: t.skip}
	if err := d.checkOutput(t.checks); err != nil {
		return err
	}
	if t.timeout <= 0 {
		return usagef("--timeout has to be more than 0, not %s", t.timeout)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), t.timeout)
	defer cancel()
	code := 0
	answer, err := within(ctx, func(ctx context.Context) ([]byte, error) {
		report, err := examine(ctx)
		if err != nil {
			return nil, err
		}
		code = report.ExitCode()
		return d.print(report)
	})
	if err == nil {
		_, err = cmd.OutOrStdout().Write(answer)
	}
	return d.exit(code, err)
}

// readerOf reads any kind of a cluster that a kubeconfig leads to. Nil: no kubeconfig and no context was named.
func readerOf(kubeconfig, kubeContext string) (client.Reader, error) {
	if kubeconfig == "" && kubeContext == "" {
		return nil, nil
	}
	config, err := kubeFile{kubeconfig, kubeContext}.config()
	if err != nil {
		return nil, usagef("the kubeconfig cannot be used: %s", kubeconfigMistake(err))
	}
	const each = 5 * time.Second
	config = rest.CopyConfig(config)
	config.UserAgent, config.Timeout = "wid", each // the look-up of kinds knows no context
	reader, err := newExaminingClient(config, client.Options{Scheme: runtime.NewScheme()})
	if err != nil {
		return nil, usagef("the kubeconfig cannot be used: %s", kubeconfigMistake(err))
	}
	return reader, nil
}
