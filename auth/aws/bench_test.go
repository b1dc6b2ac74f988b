package aws_test

import (
	"context"
	"crypto/sha256"
	"testing"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// inMemory reads a ServiceAccount as an informer's cache does without its deep
// copy, and leaves the rest to a client.
type inMemory struct {
	*cloudtest.Client
	sa *corev1.ServiceAccount
}

func (c inMemory) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if sa, ok := obj.(*corev1.ServiceAccount); ok {
		*sa = *c.sa
	}
	return nil
}

func benchmarkHit(b *testing.B, parallel bool, opts ...auth.Option) {
	tokens := testenv.Cache(b)
	provider := &aws.Provider{}
	opts = append(opts, testenv.WithCache(tokens, "tenant-a"), auth.WithSTSRegion("eu-central-1"))
	get := func() {
		if _, err := auth.GetAccessToken(b.Context(), provider, opts...); err != nil {
			b.Fatal(err)
		}
	}
	get()
	b.ReportAllocs()
	if parallel {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				get()
			}
		})
		return
	}
	for b.Loop() {
		get()
	}
}

func BenchmarkHitController(b *testing.B) {
	b.Setenv("AWS_CA_BUNDLE", "")
	b.Setenv("AWS_ACCESS_KEY_ID", "AKIA")
	b.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	benchmarkHit(b, false)
}

func objectLevel(b *testing.B) []auth.Option {
	_, opts := objectLevelEnvironment(b)
	return opts
}

func objectLevelEnvironment(b *testing.B) (*environment, []auth.Option) {
	w := newEnvironment(b)
	sa := &corev1.ServiceAccount{}
	key := client.ObjectKey{Namespace: "tenant-a", Name: "app"}
	if err := w.Client.Get(b.Context(), key, sa); err != nil {
		b.Fatal(err)
	}
	return w, []auth.Option{auth.WithServiceAccount(key, inMemory{w.Client, sa}), auth.WithHTTPClient(w.Cloud.Client())}
}

func BenchmarkHitObject(b *testing.B) { benchmarkHit(b, false, objectLevel(b)...) }

func BenchmarkHitObjectParallel(b *testing.B) { benchmarkHit(b, true, objectLevel(b)...) }

// BenchmarkMint exchanges over TLS on loopback, with connections that are kept.
func BenchmarkMint(b *testing.B) {
	w := newEnvironment(b)
	provider := &aws.Provider{}
	opts := w.options("tenant-a", "app")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := auth.GetAccessToken(b.Context(), provider, opts...); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFloor does the least that a hit needs: it hashes 256 bytes, finds the
// entry and reads the clock.
func BenchmarkFloor(b *testing.B) {
	entries, err := simplelru.NewLRU[[sha256.Size]byte, int](1000, nil)
	if err != nil {
		b.Fatal(err)
	}
	text := make([]byte, 256)
	entries.Add(sha256.Sum256(text), 1)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := entries.Get(sha256.Sum256(text)); !ok || time.Now().IsZero() {
			b.Fatal("miss")
		}
	}
}

func BenchmarkRetrieve(b *testing.B) {
	tokens := testenv.Cache(b)
	opts := append(objectLevel(b), testenv.WithCache(tokens, "tenant-a"), auth.WithSTSRegion("eu-central-1"))
	creds := aws.NewCredentialsProvider(opts...)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := creds.Retrieve(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkHitRegistry(b *testing.B) {
	benchmarkDerived(b, func(ctx context.Context, p *aws.Provider, opts []auth.Option) error {
		_, err := auth.GetArtifactRegistryCredentials(ctx, p, registryHost+"/app", opts...)
		return err
	})
}

func BenchmarkHitGit(b *testing.B) {
	git := auth.WithGitURL(parseURL(b, gitURL))
	benchmarkDerived(b, func(ctx context.Context, p *aws.Provider, opts []auth.Option) error {
		_, err := auth.GetGitCredentials(ctx, p, append(opts[:len(opts):len(opts)], git)...)
		return err
	})
}

func BenchmarkHitCluster(b *testing.B) {
	cluster := auth.WithClusterResource(clusterARN)
	benchmarkDerived(b, func(ctx context.Context, p *aws.Provider, opts []auth.Option) error {
		_, err := auth.GetRESTConfig(ctx, p, append(opts[:len(opts):len(opts)], cluster)...)
		return err
	})
}

func benchmarkDerived(b *testing.B, get func(context.Context, *aws.Provider, []auth.Option) error) {
	tokens := testenv.Cache(b)
	w, opts := objectLevelEnvironment(b)
	w.clusters()
	opts = append(opts, testenv.WithCache(tokens, "tenant-a"), auth.WithSTSRegion("eu-central-1"))
	p := &aws.Provider{}
	b.ReportAllocs()
	for b.Loop() {
		if err := get(b.Context(), p, opts); err != nil {
			b.Fatal(err)
		}
	}
}
