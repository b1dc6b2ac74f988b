package auth_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// refusing is an API server that gives no tokens.
type refusing struct {
	auth.KubernetesClient
	err error
}

func (r refusing) SubResource(string) client.SubResourceClient { return refusal{err: r.err} }

type refusal struct {
	client.SubResourceClient
	err error
}

func (r refusal) Create(context.Context, client.Object, client.Object, ...client.SubResourceCreateOption) error {
	return r.err
}

// results records the results of exchanges.
type results struct {
	cache.Observer
	mu   sync.Mutex
	seen []string
}

func (*results) Attach(func() cache.Stats)                {}
func (*results) Request(cache.InvolvedObject, bool, bool) {}
func (r *results) Mint(_, result string, _ time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, result)
}

// A failure of the API server is not the cloud's. A missing rule stays what it
// is.
func TestExchangeResult(t *testing.T) {
	resource := schema.GroupResource{Resource: "serviceaccounts"}
	for name, tc := range map[string]struct {
		kubernetes, cloud error
		want              string
	}{
		"API server down":        {errors.New("connection refused"), nil, "kubernetes_unavailable"},
		"API server unavailable": {apierrors.NewServiceUnavailable("later"), nil, "kubernetes_unavailable"},
		"API server throttles":   {apierrors.NewTooManyRequests("slowly", 1), nil, "kubernetes_unavailable"},
		"API server slow":        {context.DeadlineExceeded, nil, "kubernetes_unavailable"},
		"API server forbids":     {apierrors.NewForbidden(resource, "app", errors.New("no rule")), nil, "denied"},
		"deleted":                {apierrors.NewNotFound(resource, "app"), nil, "misconfigured"},
		"cloud down":             {nil, &auth.Error{Reason: auth.ErrUnavailable}, "unavailable"},
		"cloud slow":             {nil, context.DeadlineExceeded, "timeout"},
		"cloud refuses":          {nil, &auth.Error{Reason: auth.ErrDenied}, "denied"},
		"cloud's unknown error":  {nil, errors.New("503"), "unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			k8s, seen := newCluster(), &results{}
			tokens := testenv.Cache(t, cache.WithObserver(seen))
			var c auth.KubernetesClient = k8s
			if tc.kubernetes != nil {
				c = refusing{k8s, tc.kubernetes}
			}
			cloud := &exchange{mint: func(context.Context, string) (auth.Token, error) { return nil, tc.cloud }}
			_, err := auth.GetAccessToken(t.Context(), cloud, auth.WithServiceAccount(k8s.create("tenant-a", "app", nil), c),
				testenv.WithCache(tokens, "tenant-a"))
			tokens.Close()
			if err == nil || !slices.Equal(seen.seen, []string{tc.want}) {
				t.Errorf("%v is %q, want %q", err, seen.seen, tc.want)
			}
		})
	}
}
