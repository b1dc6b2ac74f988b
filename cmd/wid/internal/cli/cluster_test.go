package cli

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// The error of an API server may repeat the credential that it got.
func TestClientsCleanTheCredentialsThatTheySent(t *testing.T) {
	for name, tc := range map[string]struct{ header, secret string }{
		"bearer":           {"Bearer bearer-secret", "bearer-secret"},
		"password":         {"Basic " + base64.StdEncoding.EncodeToString([]byte("me:hunter2-password")), "hunter2-password"},
		"basic":            {"Basic " + base64.StdEncoding.EncodeToString([]byte("me:x")), "bWU6eA=="},
		"unknown scheme":   {"Token other-secret", "other-secret"},
		"without a scheme": {"plain-secret", "plain-secret"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &Clients{}
			c.note(tc.header)
			if got := c.Clean("the server refuses " + tc.secret + "!"); strings.Contains(got, tc.secret) {
				t.Errorf("got %q, which holds the credential", got)
			}
		})
	}
}

// pages lists one ConfigMap a page.
type pages struct {
	client.Reader
	names []string
}

func (p pages) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	at, _ := strconv.Atoi((&client.ListOptions{}).ApplyOptions(opts).Continue) // "" is 0
	page := &corev1.ConfigMapList{Items: []corev1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Name: p.names[at]}}}}
	if at+1 < len(p.names) {
		page.Continue = strconv.Itoa(at + 1)
	}
	*list.(*corev1.ConfigMapList) = *page //nolint:forcetypeassert // the test's own
	return nil
}

func TestEachReadsAllPages(t *testing.T) {
	want := []string{"a", "b", "c"}
	var got []string
	err := Each(t.Context(), pages{names: want}, &corev1.ConfigMapList{}, func(c *corev1.ConfigMap) {
		got = append(got, c.Name)
	})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}
