package main

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	fluxauth "github.com/fluxcd/pkg/auth"
	fluxaws "github.com/fluxcd/pkg/auth/aws"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
)

const cacheSize = 1000

// repeated makes an op of a call whose result has to be the same each time.
func repeated[T comparable](get func(context.Context) (T, error)) op {
	ctx := context.Background()
	first, firstErr := get(ctx)
	return func(n int) error {
		if firstErr != nil {
			return firstErr
		}
		for range n {
			again, err := get(ctx)
			if err != nil {
				return err
			}
			if again != first {
				return mustBe(false, "not from the cache")
			}
		}
		return nil
	}
}

// hit compares repeated calls of any of the Get functions.
func hit[A, B comparable](w *world, p plan, t *tenant, ours func(context.Context) (A, error), theirs func(context.Context) (B, error)) (result, error) {
	floor, err := floorHit(w, t)
	if err != nil {
		return result{}, err
	}
	return hits(p, sides{ours: repeated(ours), theirs: repeated(theirs), floor: floor})
}

func hitController(w *world, p plan) (result, error) { return hitAccessToken(w, p, nil) }

func hitObject(w *world, p plan) (result, error) {
	return hitAccessToken(w, p, w.tenant("tenant-a", true))
}

func hitAccessToken(w *world, p plan, t *tenant) (result, error) {
	ours, theirs, end, err := caches(cacheSize)
	if err != nil {
		return result{}, err
	}
	defer end()
	provider, o, f := &aws.Provider{}, w.ours(ours, t), w.theirs(theirs, t)
	return hit(w, p, t,
		func(ctx context.Context) (auth.Token, error) { return auth.GetAccessToken(ctx, provider, o...) },
		func(ctx context.Context) (fluxauth.Token, error) {
			return fluxauth.GetAccessToken(ctx, fluxaws.Provider{}, f...)
		})
}

func hitObjectParallel(w *world, p plan) (result, error) {
	ours, theirs, end, err := caches(cacheSize)
	if err != nil {
		return result{}, err
	}
	defer end()
	t := w.tenant("tenant-a", true)
	provider, o, f := &aws.Provider{}, w.ours(ours, t), w.theirs(theirs, t)
	floor, err := floorHit(w, t)
	if err != nil {
		return result{}, err
	}
	return hits(p, sides{
		ours: parallel(repeated(func(ctx context.Context) (auth.Token, error) {
			return auth.GetAccessToken(ctx, provider, o...)
		})),
		theirs: parallel(repeated(func(ctx context.Context) (fluxauth.Token, error) {
			return fluxauth.GetAccessToken(ctx, fluxaws.Provider{}, f...)
		})),
		floor: parallel(floor),
	})
}

// parallel shares the calls between all cores.
func parallel(f op) op {
	return func(n int) error {
		workers := runtime.GOMAXPROCS(0)
		errs := make([]error, workers)
		var wg sync.WaitGroup
		for i := range workers {
			wg.Go(func() { errs[i] = f((n + workers - 1) / workers) })
		}
		wg.Wait()
		return errors.Join(errs...)
	}
}

func hitRegistry(w *world, p plan) (result, error) {
	ours, theirs, end, err := caches(cacheSize)
	if err != nil {
		return result{}, err
	}
	defer end()
	defer w.plainPasswords()()
	t := w.tenant("tenant-a", true)
	provider, o, f := &aws.Provider{}, w.ours(ours, t), w.theirs(theirs, t)
	return hit(w, p, t,
		func(ctx context.Context) (*auth.ArtifactRegistryCredentials, error) {
			return auth.GetArtifactRegistryCredentials(ctx, provider, repository, o...)
		},
		func(ctx context.Context) (*fluxauth.ArtifactRegistryCredentials, error) {
			return fluxauth.GetArtifactRegistryCredentials(ctx, fluxaws.Provider{}, repository, f...)
		})
}

func hitAdapter(w *world, p plan) (result, error) {
	ours, theirs, end, err := caches(cacheSize)
	if err != nil {
		return result{}, err
	}
	defer end()
	a := (&aws.Provider{}).NewCredentialsProvider(w.ours(ours, nil)...)
	b := fluxaws.NewCredentialsProvider(context.Background(), w.theirs(theirs, nil)...)
	return hit(w, p, nil,
		func(ctx context.Context) (string, error) {
			c, err := a.Retrieve(ctx)
			return c.SessionToken, err
		},
		func(ctx context.Context) (string, error) {
			c, err := b.Retrieve(ctx)
			return c.SessionToken, err
		})
}

// each measures n single calls and returns their median.
func each(ctx context.Context, n int, until time.Time, call func(context.Context) error) (float64, error) {
	samples := make([]time.Duration, 0, n)
	for len(samples) < n && (len(samples) == 0 || time.Now().Before(until)) {
		start := time.Now()
		if err := call(ctx); err != nil {
			return 0, err
		}
		samples = append(samples, time.Since(start))
	}
	return percentile(samples, 50), nil
}
