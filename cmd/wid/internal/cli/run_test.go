package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/bootstrap"
)

// Work that knows nothing of contexts, such as reading a named pipe, does not
// outlast the time-out by much.
func TestWorkThatNeverEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		end := make(chan struct{})
		start := time.Now()
		answer, err := Within(ctx, func(context.Context) ([]byte, error) { <-end; return []byte("late"), nil })
		if answer != nil || !errors.Is(err, auth.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(start) > time.Minute+Grace {
			t.Errorf("after %s: %q, %v", time.Since(start), answer, err)
		}
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, interrupt)
		start = time.Now()
		answer, err = Within(ctx, func(context.Context) ([]byte, error) { <-end; return []byte("late"), nil })
		// for the state of a wait
		if answer != nil || !errors.Is(err, ErrInterrupted) || time.Since(start) > time.Second+Grace/5 {
			t.Errorf("after %s: %q, %v", time.Since(start), answer, err)
		}
		close(end)
		answer, err = Within(t.Context(), func(context.Context) ([]byte, error) { return []byte("answer"), nil })
		if string(answer) != "answer" || err != nil {
			t.Errorf("got %q, %v", answer, err)
		}
	})
}

func TestTimeoutOfACommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cmd := (&Side{}).Limited(&cobra.Command{Use: "x", SilenceErrors: true, SilenceUsage: true}, time.Minute,
			func(ctx context.Context, _ *cobra.Command) error { <-ctx.Done(); return ctx.Err() })
		cmd.SetArgs([]string{"--timeout=5s"})
		start := time.Now()
		err := cmd.ExecuteContext(t.Context())
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != 5*time.Second {
			t.Errorf("got %v after %s, want the deadline after 5s", err, took)
		}
	})
}

func TestOneLineHidesCredentialsOfURLs(t *testing.T) {
	const want = "dial https://[redacted]@hub.example/x"
	if got := OneLine("dial\thttps://me:hunter2@hub.example/x\n"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

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

func TestInterruptedWaitSaysHowFarItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		cmd := &cobra.Command{}
		cmd.SetErr(&bytes.Buffer{})
		_, err := Within(ctx, func(ctx context.Context) ([]byte, error) {
			return nil, Await(ctx, cmd, func() (string, error) { return `for the agent of cluster "a" to join`, nil })
		})
		if !errors.Is(err, ErrInterrupted) ||
			!strings.Contains(err.Error(), `while waiting for the agent of cluster "a" to join`) {
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
		if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); len(lines) != 1 ||
			!regexp.MustCompile(`^wid: waiting until \d\d:\d\d:\d\d for https://hub.example to answer$`).MatchString(lines[0]) {
			t.Errorf("%q", lines)
		}
	})
}

// An unknown token ends the wait, with the exit code of a refusal and the
// causes of the library.
func TestDiscoverRefusesAnUnknownToken(t *testing.T) {
	var published corev1.ConfigMap
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(published)
	}))
	defer server.Close()
	info := &bootstrap.ClusterInfo{Server: server.URL,
		CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}
	content, err := info.Encode()
	if err != nil {
		t.Fatal(err)
	}
	published.Data = map[string]string{"kubeconfig": string(content), "jws-kubeconfig-zzzzzz": "x"}
	token, err := bootstrap.ParseToken("abcdef.0123456789abcdef")
	if err != nil {
		t.Fatal(err)
	}
	cmd := &cobra.Command{}
	var said bytes.Buffer
	cmd.SetErr(&said)
	_, err = Discover(t.Context(), cmd, []string{server.URL}, token, time.Nanosecond, bootstrap.WithoutPins())
	if err == nil || ExitCode(t.Context(), err) != ExitDenied || strings.Contains(err.Error(), "doctor") ||
		strings.Count(err.Error(), "expired, deleted, mistyped, or without the usage signing") != 1 ||
		!strings.Contains(err.Error(), "wid bootstrap check") {
		t.Errorf("it ends with %v", err)
	}
	// The wait names its limit, and an interrupt what is missing.
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	cmd.SetErr(io.MultiWriter(&said, writer(interrupt)))
	_, err = Discover(ctx, cmd, []string{server.URL}, token, 10*time.Second, bootstrap.WithoutPins())
	if !errors.Is(err, ErrInterrupted) || !strings.Contains(err.Error(), "while waiting for cluster-info: ") ||
		strings.Contains(err.Error(), "its first answer") || strings.Count(said.String(), "\n") != 1 ||
		!strings.HasPrefix(said.String(), "wid: waiting, or 10s for a signature with this token, for cluster-info: ") {
		t.Errorf("it says %s, and ends with %v", said.String(), err)
	}
}

// A hub that publishes nothing is told to at once.
func TestDiscoverNamesTheCommandThatPublishes(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","code":403}`)
	}))
	defer server.Close()
	token, err := bootstrap.ParseToken("abcdef.0123456789abcdef")
	if err != nil {
		t.Fatal(err)
	}
	cmd := &cobra.Command{}
	cmd.SetErr(io.Discard)
	_, err = Discover(t.Context(), cmd, []string{server.URL}, token, time.Minute, bootstrap.WithoutPins(),
		bootstrap.WithFinalCauses(bootstrap.CauseAnonymousForbidden))
	if ExitCode(t.Context(), err) != ExitMisconfigured ||
		!strings.Contains(err.Error(), "wid bootstrap publish --context CLUSTER") {
		t.Errorf("it ends with %v", err)
	}
}

// writer is called for each line.
type writer func()

func (w writer) Write(line []byte) (int, error) {
	w()
	return len(line), nil
}
