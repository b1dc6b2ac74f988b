package gcp_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/internal/testing/testworld"
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

func benchmarkHit(b *testing.B, name string, more ...auth.Option) {
	w := newWorld(b)
	w.inGKE()
	sa := &corev1.ServiceAccount{}
	key := client.ObjectKey{Namespace: "tenant-a", Name: name}
	if err := w.client.Get(b.Context(), key, sa); err != nil {
		b.Fatal(err)
	}
	provider := &gcp.Provider{}
	opts := append(more, auth.WithServiceAccount(key, inMemory{w.client, sa}), auth.WithHTTPClient(w.cloud.Client()),
		auth.WithCache(testworld.Cache(b), object("tenant-a")))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := auth.GetAccessToken(b.Context(), provider, opts...); err != nil {
			b.Fatal(err)
		}
	}
	if n := w.cloud.Calls("gcp-sts", ""); n != 1 {
		b.Errorf("%d exchanges", n)
	}
}

func BenchmarkHitInGKE(b *testing.B)             { benchmarkHit(b, "gke") }
func BenchmarkHitWithProvider(b *testing.B)      { benchmarkHit(b, "direct") }
func BenchmarkHitWithImpersonation(b *testing.B) { benchmarkHit(b, "app") }
