package agent_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/agent"
)

// A webhook of the hub refuses with a long text.
func TestLongestWarningIsRecorded(t *testing.T) {
	w := newAgentEnvironment(t)
	w.opts.Recorder = kubetest.Start(t).Recorder(t)
	a, err := agent.New(w.opts)
	regtest.Must(t, err)
	w.agent = a
	w.refused[bootstrapToken] = errors.New(strings.Repeat("no ", 10_000))
	if _, err := w.reconcile(); err == nil {
		t.Error("no error")
	}
}
