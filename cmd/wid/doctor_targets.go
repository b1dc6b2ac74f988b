package main

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/olddoctor"
)

// examiner are the flags that the doctor's targets without a provider share.
type examiner struct {
	output  string
	skip    []string
	timeout time.Duration
	checks  []doctor.Check

	stderr io.Writer
	mu     sync.Mutex
	relays []*relay // of the kubeconfigs' exec plugins
}

const doctorCodes = "Exit codes: 0 all passed, 1 something failed, 2 wrong usage, 3 nothing failed, but something is unclear."

func (t *examiner) addTo(cmd *cobra.Command) {
	cmd.SetUsageFunc((&cobra.Command{}).UsageFunc()) // that of the doctor has flags of an identity
	f := cmd.Flags()
	f.StringVarP(&t.output, "output", "o", "text", "text or json")
	f.StringSliceVar(&t.skip, "skip", nil, "names of checks to leave out")
	f.DurationVar(&t.timeout, "timeout", defaultTimeout, "time for everything together, a minute at most")
}

// run is that of the doctor: a whole report or nothing, within the time.
func (t *examiner) run(cmd *cobra.Command, examine func(ctx context.Context) (*doctor.Report, error)) error {
	d := &doctorFlags{output: t.output, skip: t.skip}
	if err := d.checkOutput(t.checks); err != nil {
		return err
	}
	if t.timeout <= 0 {
		return usagef("--timeout has to be more than 0, not %s", t.timeout)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), t.timeout)
	defer cancel()
	t.stderr = cmd.ErrOrStderr()
	defer t.endRelays()
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

// readerOf reads any kind of a cluster that a kubeconfig leads to, and says how it gets there. Nil: no kubeconfig and no context
// was named.
func (t *examiner) readerOf(kubeconfig, kubeContext string) (client.Reader, *rest.Config, error) {
	if kubeconfig == "" && kubeContext == "" {
		return nil, nil, nil
	}
	config, err := kubeFile{kubeconfig, kubeContext}.config()
	if err != nil {
		return nil, nil, usagef("the kubeconfig cannot be used: %s", kubeconfigMistake(err))
	}
	const each = 5 * time.Second
	config = rest.CopyConfig(config)
	config.UserAgent, config.Timeout = "wid", each // the look-up of kinds knows no context
	if err := t.relay(config); err != nil {
		return nil, nil, usagef("the kubeconfig cannot be used: %s", kubeconfigMistake(err))
	}
	reader, err := newExaminingClient(config, client.Options{Scheme: runtime.NewScheme()})
	if err != nil {
		return nil, nil, usagef("the kubeconfig cannot be used: %s", kubeconfigMistake(err))
	}
	return reader, config, nil
}

// relay keeps our standard error from exec plugins, which may outlive this program.
func (t *examiner) relay(config *rest.Config) error {
	to := t.stderr
	if to == nil {
		to = io.Discard
	}
	r, err := newRelay(config, to)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.relays = append(t.relays, r)
	return err
}

func (t *examiner) endRelays() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.relays {
		r.end()
	}
}
