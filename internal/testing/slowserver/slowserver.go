// Package slowserver plays API servers and stores that read a write and never
// answer it. The client's own timeout then ends the request.
package slowserver

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Client is an HTTP client of a slow server. It times out when the server
// hangs, without a wait.
type Client struct {
	http.Client
	URL string
}

// Test calls write with a server that hangs on the first write, then with one
// that refuses the first write as a conflict and hangs on the second. Reads
// return object. The write that hung must be the last one, and write must
// return its timeout.
func Test(t *testing.T, object any, write func(t *testing.T, c *Client) error) {
	t.Helper()
	for name, conflicts := range map[string]int32{"the first write hangs": 0, "a write hangs after a conflict": 1} {
		t.Run(name, func(t *testing.T) {
			var handled, sent atomic.Int32
			ctx, timeOut := context.WithCancelCause(t.Context())
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "application/json")
				switch {
				case r.Method == http.MethodGet:
					_ = json.NewEncoder(w).Encode(object)
				case handled.Add(1) <= conflicts:
					w.WriteHeader(http.StatusConflict)
					_ = json.NewEncoder(w).Encode(apierrors.NewConflict(schema.GroupResource{}, "", errors.New("changed")).Status())
				default:
					timeOut(context.DeadlineExceeded)
					<-r.Context().Done()
				}
			}))
			defer server.Close()
			c := &Client{URL: server.URL}
			c.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.Method != http.MethodGet {
					sent.Add(1)
				}
				return http.DefaultTransport.RoundTrip(r.WithContext(ctx))
			})
			if err := write(t, c); !errors.Is(err, context.DeadlineExceeded) || sent.Load() != conflicts+1 {
				t.Errorf("%d writes, want %d; error %v", sent.Load(), conflicts+1, err)
			}
		})
	}
}

// TestObject is Test with a client of Kubernetes that reads one object.
func TestObject(t *testing.T, scheme *runtime.Scheme, object client.Object, write func(c client.WithWatch) error) {
	t.Helper()
	gvk, err := apiutil.GVKForObject(object, scheme)
	if err != nil {
		t.Fatal(err)
	}
	object.GetObjectKind().SetGroupVersionKind(gvk)
	object.SetResourceVersion("1")
	scope := meta.RESTScopeRoot
	if object.GetNamespace() != "" {
		scope = meta.RESTScopeNamespace
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(gvk, scope)
	Test(t, object, func(t *testing.T, slow *Client) error {
		c, err := client.NewWithWatch(&rest.Config{Host: slow.URL},
			client.Options{Scheme: scheme, Mapper: mapper, HTTPClient: &slow.Client})
		if err != nil {
			t.Fatal(err)
		}
		return write(c)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
