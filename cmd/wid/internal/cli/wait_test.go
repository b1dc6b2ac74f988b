package cli

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/spf13/cobra"
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
				err := Await(ctx, cmd, func() (string, error) {
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
				err := During(ctx, cmd, func() string { return "for A" }, func() error {
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
		_, err := Within(ctx, func(ctx context.Context) ([]byte, error) {
			return nil, Await(ctx, cmd, func() (string, error) { return `for the agent of cluster "a" to join`, nil })
		})
		if !errors.Is(err, ErrInterrupted) || !strings.Contains(err.Error(), `while waiting for the agent of cluster "a" to join`) {
			t.Errorf("it says %v", err)
		}
	})
}

// A request that takes long is announced, and an answer ends that.
func TestAnnounce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		config := &rest.Config{Host: "https://hub.example"}
		Announce(config, &out)
		slow := roundTripper(func(*http.Request) (*http.Response, error) {
			time.Sleep(13 * time.Second) // in fake time
			return &http.Response{}, nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://hub.example/api?token=hunter2", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := config.WrapTransport(slow).RoundTrip(r); err != nil { //nolint:bodyclose // there is none
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); len(lines) != 2 || !regexp.MustCompile(`^wid: waiting until \d\d:\d\d:\d\d for https://hub.example to answer$`).MatchString(lines[0]) {
			t.Errorf("%q", lines)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
