package github_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/cache"
)

// inMemory reads a ServiceAccount as an informer's cache does without its deep copy, and leaves the rest to a client.
type inMemory struct {
	*authtest.Client
	sa *corev1.ServiceAccount
}

func (c inMemory) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if sa, ok := obj.(*corev1.ServiceAccount); ok {
		*sa = *c.sa
	}
	return nil
}

// A hit allocates the ServiceAccount for Grant and the text of the identity.
func BenchmarkHit(b *testing.B) {
	w := newWorld(b)
	tokens, err := cache.NewTokenCache(100)
	if err != nil {
		b.Fatal(err)
	}
	defer tokens.Close()
	sa := &corev1.ServiceAccount{}
	if err := w.client.Get(b.Context(), account("tenant-b"), sa); err != nil {
		b.Fatal(err)
	}
	p := w.granting(grants()["tenant-b"])
	opts := []auth.Option{auth.WithServiceAccount(account("tenant-b"), inMemory{w.client, sa}),
		auth.WithHTTPClient(w.cloud.Client()),
		auth.WithCache(tokens, object("tenant-b"))}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := auth.GetAccessToken(b.Context(), p, opts...); err != nil {
			b.Fatal(err)
		}
	}
	if n := w.calls(); n != 1 {
		b.Errorf("%d exchanges", n)
	}
}
