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
func hit[A, B comparable](w *environment, p plan, t *tenant, ours func(context.Context) (A, error),
	theirs func(context.Context) (B, error)) (result, error) {
	bound, err := boundHit(w, t)
	if err != nil {
		return result{}, err
	}
	return hits(p, sides{ours: repeated(ours), theirs: repeated(theirs), bound: bound})
}

func hitController(w *environment, p plan) (result, error) { return hitAccessToken(w, p, nil) }

func hitObject(w *environment, p plan) (result, error) {
	return hitAccessToken(w, p, w.tenant("tenant-a", true))
}

func hitAccessToken(w *environment, p plan, t *tenant) (result, error) {
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

func hitObjectParallel(w *environment, p plan) (result, error) {
	ours, theirs, end, err := caches(cacheSize)
	if err != nil {
		return result{}, err
	}
	defer end()
	t := w.tenant("tenant-a", true)
	provider, o, f := &aws.Provider{}, w.ours(ours, t), w.theirs(theirs, t)
	bound, err := boundHit(w, t)
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
		bound: parallel(bound),
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

func hitRegistry(w *environment, p plan) (result, error) {
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

func hitAdapter(w *environment, p plan) (result, error) {
	ours, theirs, end, err := caches(cacheSize)
	if err != nil {
		return result{}, err
	}
	defer end()
	a := (&aws.Provider{}).NewCredentialsProvider(w.ours(ours, nil)...)
	b := fluxaws.NewCredentialsProvider(context.Background(), w.theirs(theirs, nil)...)
	bound, err := boundAdapter()
	if err != nil {
		return result{}, err
	}
	return hits(p, sides{
		ours: repeated(func(ctx context.Context) (string, error) {
			c, err := a.Retrieve(ctx)
			return c.SessionToken, err
		}),
		theirs: repeated(func(ctx context.Context) (string, error) {
			c, err := b.Retrieve(ctx)
			return c.SessionToken, err
		}),
		bound: bound,
	})
}

// paced measures one call in a millisecond, as a controller that has other
// things to do, and returns the median.
func paced(ctx context.Context, span time.Duration, call func(context.Context) error) (float64, error) {
	return samples(ctx, span, time.Millisecond, call)
}

// single measures one call after the other and returns the median.
func single(ctx context.Context, span time.Duration, call func(context.Context) error) (float64, error) {
	return samples(ctx, span, 0, call)
}

func samples(ctx context.Context, span, pause time.Duration, call func(context.Context) error) (float64, error) {
	var taken []time.Duration
	for until := time.Now().Add(span); len(taken) == 0 || time.Now().Before(until); {
		time.Sleep(pause)
		start := time.Now()
		if err := call(ctx); err != nil {
			return 0, err
		}
		taken = append(taken, time.Since(start))
	}
	return percentile(taken, 50), nil
}
