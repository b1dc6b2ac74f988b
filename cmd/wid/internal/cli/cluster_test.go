package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
)

// An answer without end costs no memory.
func TestAnswersAreBounded(t *testing.T) {
	const most = 2 * maxAnswer // more than the system takes for a client that does not read
	var whole atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		block := make([]byte, 64<<10)
		_, err := rw.Write([]byte(`{"kind":"`))
		for range most / len(block) {
			if err == nil {
				_, err = rw.Write(block)
			}
		}
		if err == nil {
			whole.Add(1)
		}
	}))
	defer server.Close()
	c, err := NewClient(&rest.Config{Host: server.URL})
	if err == nil {
		err = c.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: "b"}, &corev1.ConfigMap{})
	}
	if err = AnswerOf(err, "read"); !errors.Is(err, auth.ErrUnavailable) || whole.Load() > 0 {
		t.Errorf("got %v, and %d answers were read whole, want none", err, whole.Load())
	}
}

// answering is a server of one answer.
type answering http.Header

func (a answering) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header(a).Clone(), Body: http.NoBody}, nil
}

// An API server that is overloaded is asked again if there is time for that.
// Otherwise its answer is the error.
func TestRetryAfterBeyondTheDeadline(t *testing.T) {
	for after, kept := range map[string]bool{"1": true, "40": false, "31536000": false} {
		t.Run(after, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			request := httptest.NewRequestWithContext(ctx, http.MethodGet, "https://hub.example", nil)
			answer, err := patient(answering{"Retry-After": {after}, "Location": {"https://other"}}, request)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			if got := answer.Header.Get("Retry-After") != ""; got != kept || answer.Header.Get("Location") != "" {
				t.Errorf("the answer has %v, want Retry-After: %t, and no Location", answer.Header, kept)
			}
		})
	}
}

const good = `{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: c}}], ` +
	`clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"%s}}]}`

// piped returns a file that can be read once, as <(…) of a shell is.
func piped(t *testing.T, content string) (path string) {
	t.Helper()
	read, write, err := os.Pipe()
	if err == nil {
		_, err = write.WriteString(content)
	}
	if err = errors.Join(err, write.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = read.Close() })
	return fmt.Sprintf("/dev/fd/%d", read.Fd())
}

func TestKubeconfigFromAPipe(t *testing.T) {
	good := fmt.Sprintf(good, "")
	for name, row := range map[string]struct {
		path, variable, context, want string
	}{
		"good":      {path: piped(t, good)},
		"context":   {path: piped(t, good), context: "x"},
		"variable":  {variable: piped(t, good)},
		"empty":     {path: piped(t, ""), want: "pass --kubeconfig"},
		"nonsense":  {path: piped(t, "{"), want: "pass --kubeconfig"},
		"directory": {path: t.TempDir(), want: "is a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", row.variable)
			side := &Side{KubeFile: KubeFile{Path: row.path, Context: row.context}}
			config, _, err := side.Config()
			if row.want != "" {
				if !errors.Is(err, auth.ErrMisconfigured) || !strings.Contains(err.Error(), row.want) {
					t.Errorf("got %v, want %q", err, row.want)
				}
			} else if err != nil || config.Host != "https://127.0.0.1:1" {
				t.Errorf("got %v, %v", config, err)
			}
		})
	}
}

// The proxy's password is not in a message about a kubeconfig that cannot be
// used.
func TestProxyPasswordOfKubeconfig(t *testing.T) {
	for _, proxy := range []string{"http://puser:PROXYSECRET%zz@proxy:1", "ftp://puser:PROXYSECRET@proxy",
		"http://puser:PROXYSECRET@proxy:port", "http://puser:PROXYSECRET@pro xy", "%PROXYSECRET"} {
		t.Run(proxy, func(t *testing.T) {
			side := &Side{KubeFile: KubeFile{Path: piped(t, fmt.Sprintf(good, `, proxy-url: "`+proxy+`"`))}}
			config, _, err := side.Config()
			if err == nil {
				_, err = NewClient(config)
			}
			if err == nil || strings.Contains(err.Error(), "PROXYSECRET") {
				t.Errorf("got %v, want an error without the password", err)
			}
		})
	}
}
