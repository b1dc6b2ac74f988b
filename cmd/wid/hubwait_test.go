package main

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/registration/ocm"
)

// A command that waits says so after 2 s, after a change, and every 10 s.
func TestWaitSaysWhatItWaitsForAndUntilWhen(t *testing.T) {
	for name, tc := range map[string]struct {
		until time.Duration // when it is done
		want  []string
	}{
		"1 s":  {time.Second, nil},
		"3 s":  {3 * time.Second, []string{"2s for A"}},
		"23 s": {23 * time.Second, []string{"2s for A", "5s for B", "15s for B"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				ctx, cancel := context.WithDeadline(t.Context(), start.Add(time.Minute))
				defer cancel()
				said := &timed{start: start}
				cmd := &cobra.Command{}
				cmd.SetErr(said)
				err := await(ctx, cmd, func() (string, error) {
					switch since := time.Since(start); {
					case since >= tc.until:
						return "", nil
					case since < 5*time.Second:
						return "for A", nil
					}
					return "for B", nil
				})
				if err != nil || !slices.Equal(said.lines, tc.want) {
					t.Errorf("it says %q, %v", said.lines, err)
				}
			})
		})
	}
}

// timed keeps lines, with the time instead of "wid: waiting until …".
type timed struct {
	start time.Time
	lines []string
}

func (w *timed) Write(line []byte) (int, error) {
	rest := strings.TrimPrefix(string(line), "wid: waiting until "+w.start.Add(time.Minute).Format(time.TimeOnly)+" ")
	w.lines = append(w.lines, time.Since(w.start).String()+" "+strings.TrimSpace(rest))
	return len(line), nil
}

// Work that waits by itself knows best why it ended.
func TestWaitForWorkReturnsItsError(t *testing.T) {
	for name, takes := range map[string]time.Duration{"at once": 0, "after a notice": 3 * time.Second, "with the deadline": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				cause, cmd := errors.New("the port is closed"), &cobra.Command{}
				cmd.SetErr(&bytes.Buffer{})
				err := during(ctx, cmd, func() string { return "for A" }, func() error {
					select {
					case <-time.After(takes):
					case <-ctx.Done():
					}
					return cause
				})
				if !errors.Is(err, cause) {
					t.Errorf("it returns %v", err)
				}
			})
		})
	}
}

func TestInterruptedWaitSaysHowFarItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		cmd := &cobra.Command{}
		cmd.SetErr(&bytes.Buffer{})
		_, err := within(ctx, func(ctx context.Context) ([]byte, error) {
			return nil, await(ctx, cmd, func() (string, error) { return `for the agent of cluster "a" to join`, nil })
		})
		if !errors.Is(err, errInterrupted) || !strings.Contains(err.Error(), `while waiting for the agent of cluster "a" to join`) {
			t.Errorf("it says %v", err)
		}
	})
}

// The hub creates a Lease that is missing, which is no news of the agent. A first join needs no Lease.
func TestHubAcceptTakesOnlyARenewalForTheAgent(t *testing.T) {
	for name, tc := range map[string]struct {
		joined, lease bool // before
		renewals      int  // writes of the Lease afterwards, the first one by the hub if there was none
		want          bool
	}{
		"first join":                       {want: true},
		"joined before, Lease unchanged":   {joined: true, lease: true},
		"joined before, Lease renewed":     {joined: true, lease: true, renewals: 1, want: true},
		"joined before, Lease of the hub":  {joined: true, renewals: 1},
		"joined before, that Lease renews": {joined: true, renewals: 2, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newClaimHub(t)
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: ocm.LeaseName}}
			if tc.lease {
				if err := h.fake.Create(t.Context(), lease); err != nil {
					t.Fatal(err)
				}
			}
			cluster := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
			if tc.joined {
				cluster.Status.Conditions = []metav1.Condition{{Type: ocm.ConditionJoined, Status: metav1.ConditionTrue}}
			}
			d := &deciding{hub: h.fake, wait: true}
			before, err := d.agentBefore(t.Context(), cluster)
			if err != nil {
				t.Fatal(err)
			}
			renews := func() bool {
				got, err := before.renews(t.Context(), h.fake, "shop")
				if err != nil {
					t.Fatal(err)
				}
				return got
			}
			got := renews()
			for range tc.renewals {
				if lease.ResourceVersion == "" {
					err = h.fake.Create(t.Context(), lease)
				} else {
					err = h.fake.Update(t.Context(), lease)
				}
				if err != nil {
					t.Fatal(err)
				}
				got = renews()
			}
			if got != tc.want {
				t.Errorf("renews is %t", got)
			}
		})
	}
}
