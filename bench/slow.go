package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	fluxauth "github.com/fluxcd/pkg/auth"
	fluxaws "github.com/fluxcd/pkg/auth/aws"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cloudtest"
)

// getter gets the access token of a tenant, from one library and one cache.
type getter func(context.Context, *tenant) error

// getters returns ours and theirs with new caches. An error is one of the
// library or a token of another tenant.
func getters(w *environment, size int) (ours, theirs getter, end func(), err error) {
	a, b, end, err := caches(size)
	if err != nil {
		return nil, nil, nil, err
	}
	provider := &aws.Provider{}
	ours = func(ctx context.Context, t *tenant) error {
		token, err := auth.GetAccessToken(ctx, provider, w.ours(a, t)...)
		if err != nil {
			return err
		}
		own, err := aws.FromToken(token)
		if err != nil {
			return err
		}
		return mustBe(own.AccessKeyID() != "", "no credentials")
	}
	theirs = func(ctx context.Context, t *tenant) error {
		token, err := fluxauth.GetAccessToken(ctx, fluxaws.Provider{}, w.theirs(b, t)...)
		if err != nil {
			return err
		}
		own, ok := token.(*fluxaws.Credentials)
		return mustBe(ok && own.AccessKeyId != nil, "no credentials")
	}
	return ours, theirs, end, nil
}

// side picks one of a fresh pair of getters, with no connection open, for one
// round.
func side(w *environment, theirs bool, size int, measure func(getter) (float64, error)) func() (float64, error) {
	return func() (float64, error) {
		a, b, end, err := getters(w, size)
		if err != nil {
			return 0, err
		}
		defer end()
		w.closeConnections()
		if theirs {
			return measure(b)
		}
		return measure(a)
	}
}

// all has the given number of callers share the tenants. Zero means one caller
// each.
func all(tenants []*tenant, callers int, call func(*tenant) error) error {
	if callers == 0 {
		callers = len(tenants)
	}
	var next atomic.Int64
	errs := make([]error, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for n := next.Add(1) - 1; n < int64(len(tenants)) && errs[i] == nil; n = next.Add(1) - 1 {
				errs[i] = call(tenants[n])
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

const stsLatency = 20 * time.Millisecond

func warm(w *environment, p plan) (result, error) {
	tenants := w.tenants("tenant", p.scaled(200), true)
	defer w.cloud.AddFault(cloudtest.Fault{Latency: stsLatency})()
	measure := func(get getter) (float64, error) {
		start := time.Now()
		err := all(tenants, 0, func(t *tenant) error { return get(context.Background(), t) })
		return float64(time.Since(start)), err
	}
	const few = 3
	// So many at once as ours: more connections cost more than they save here.
	atOnce := make(chan struct{}, idleConnections)
	return rounds(p, few, side(w, false, cacheSize, measure), side(w, true, cacheSize, measure), func() (float64, error) {
		w.closeConnections()
		return measure(func(_ context.Context, t *tenant) error {
			atOnce <- struct{}{}
			defer func() { <-atOnce }()
			return post(w, t)
		})
	})
}

func hitWhileMinting(w *environment, p plan) (result, error) {
	hot, others := w.tenant("tenant-a", true), w.tenants("tenant", p.scaled(1000), true)
	defer w.cloud.AddFault(cloudtest.Fault{Latency: stsLatency})()
	const minters, some = 4, 5
	measure := func(get getter) (float64, error) {
		if err := get(context.Background(), hot); err != nil {
			return 0, err
		}
		stop := mintAll(get, others, minters)
		value, err := paced(context.Background(), p.span(), func(ctx context.Context) error { return get(ctx, hot) })
		minted, mintErr := stop()
		return value, errors.Join(err, mintErr, mustBe(minted > 0, "no exchange was made"))
	}
	bound, err := boundHit(w, hot)
	if err != nil {
		return result{}, err
	}
	r, err := rounds(p, some, side(w, false, 2*cacheSize, measure), side(w, true, 2*cacheSize, measure),
		func() (float64, error) {
			return paced(context.Background(), p.span(), func(context.Context) error { return bound(1) })
		})
	if err != nil || p.oursOnly {
		return r, err
	}
	idle, err := side(w, false, 2*cacheSize, func(get getter) (float64, error) {
		return paced(context.Background(), p.span(), func(ctx context.Context) error { return get(ctx, hot) })
	})()
	r.note = fmt.Sprintf(
		"one hit in a millisecond, so code and data come from memory, not from the processor's caches; ours takes %.0f ns "+
			"at that pace without exchanges.", idle)
	return r, err
}

// mintAll has callers mint for the tenants, one after the other, until it is
// stopped.
func mintAll(get getter, tenants []*tenant, callers int) (stop func() (minted int64, err error)) {
	ctx, cancel := context.WithCancel(context.Background())
	var minting sync.WaitGroup
	var minted atomic.Int64
	var once sync.Once
	first := make(chan struct{}) // is closed when one has minted, or cannot
	errs := make([]error, callers)
	for i := range callers {
		minting.Go(func() {
			defer once.Do(func() { close(first) })
			for n := i; n < len(tenants); n += callers {
				err := get(ctx, tenants[n])
				if ctx.Err() != nil {
					return
				}
				if errs[i] = err; err != nil {
					return
				}
				minted.Add(1)
				once.Do(func() { close(first) })
			}
		})
	}
	return func() (int64, error) {
		<-first
		cancel()
		minting.Wait()
		return minted.Load(), errors.Join(errs...)
	}
}

func mintThroughput(w *environment, p plan) (result, error) {
	const callers, some = 16, 5
	tenants := w.tenants("tenant", p.scaled(1000), true)
	measure := func(tenants []*tenant) func(getter) (float64, error) {
		return func(get getter) (float64, error) {
			// The first ones bring up the connections that can be kept.
			first := len(tenants) / 4
			each := func(t *tenant) error { return get(context.Background(), t) }
			if err := all(tenants[:first], callers, each); err != nil {
				return 0, err
			}
			start := time.Now()
			err := all(tenants[first:], callers, each)
			return float64(time.Since(start)) / float64(len(tenants)-first), err
		}
	}
	return rounds(p, some, side(w, false, len(tenants), measure(tenants)),
		side(w, true, len(tenants), measure(tenants[:len(tenants)/2])), func() (float64, error) {
			w.closeConnections()
			return measure(tenants)(func(_ context.Context, t *tenant) error { return post(w, t) })
		})
}

func memoryPerEntry(w *environment, p plan) (result, error) {
	tenants := w.tenants("tenant", p.scaled(10_000), true)
	bound := func() (float64, error) {
		c, err := newBoundCache(len(tenants))
		if err != nil {
			return 0, err
		}
		for _, t := range tenants {
			// As long as those of the fake STS.
			c.add([]byte(t.key.Namespace),
				&boundToken{expires: time.Now(), id: text(20), secret: text(40), sessionToken: text(240)})
		}
		w.closeConnections()
		before := heap()
		runtime.KeepAlive(c)
		c = nil //nolint:ineffassign,wastedassign // so that it can be collected
		return float64(before-heap()) / float64(len(tenants)), nil
	}
	r, err := rounds(p, 1, func() (float64, error) { return oursPerEntry(w, tenants) }, func() (float64, error) {
		return theirsPerEntry(w, tenants)
	}, bound)
	r.note =
		"the difference of the heap with all 10,000 credentials and without, after collection. The reference's exchanges go over kept connections here, to save time."
	return r, err
}

func oursPerEntry(w *environment, tenants []*tenant) (float64, error) {
	a, _, end, err := caches(len(tenants))
	if err != nil {
		return 0, err
	}
	provider := &aws.Provider{}
	err = all(tenants, parts, func(t *tenant) error {
		_, err := auth.GetAccessToken(context.Background(), provider, w.ours(a, t)...)
		return err
	})
	w.closeConnections()
	before := heap()
	if err == nil && a.Len() != len(tenants) {
		err = fmt.Errorf("%d entries instead of %d", a.Len(), len(tenants))
	}
	end()
	return float64(before-heap()) / float64(len(tenants)), err
}

func theirsPerEntry(w *environment, tenants []*tenant) (float64, error) {
	_, b, end, err := caches(len(tenants))
	if err != nil {
		return 0, err
	}
	defer end()
	provider := fluxaws.Provider{Implementation: kept{http: w.http}}
	err = all(tenants, parts, func(t *tenant) error {
		_, err := fluxauth.GetAccessToken(context.Background(), provider, w.theirs(b, t)...)
		return err
	})
	w.closeConnections()
	before := heap()
	runtime.KeepAlive(b)
	b = nil //nolint:ineffassign,wastedassign // so that it can be collected
	return float64(before-heap()) / float64(len(tenants)), err
}

// heap is what is in use when the collector has nothing left to do and
// connections that were closed are gone.
func heap() int64 {
	var m runtime.MemStats
	last := uint64(0)
	for range 50 {
		runtime.GC()
		runtime.ReadMemStats(&m)
		if diff := int64(m.HeapAlloc) - int64(last); diff < 4096 && diff > -4096 { //nolint:gosec // fits
			break
		}
		last = m.HeapAlloc
		time.Sleep(50 * time.Millisecond)
	}
	return int64(m.HeapAlloc) //nolint:gosec // fits
}

func text(n int) string { return string(make([]byte, n)) }

func failingTenants(w *environment, p plan) (result, error) {
	good, bad := w.tenants("tenant", p.scaled(100), true), w.tenants("broken", p.scaled(100), false)
	const latency, callers, few = 5 * time.Millisecond, 8, 3
	defer w.cloud.AddFault(cloudtest.Fault{Latency: latency})()
	var asked [2]atomic.Int64
	measure := func(which int) func(getter) (float64, error) {
		return func(get getter) (float64, error) {
			if err := all(good, 0, func(t *tenant) error { return get(context.Background(), t) }); err != nil {
				return 0, err
			}
			calls := w.cloud.Calls("sts", "")
			samples, err := mixed(get, good, bad, callers, time.Now().Add(p.span()))
			asked[which].Add(int64(w.cloud.Calls("sts", "") - calls))
			return percentile(samples, 50), err
		}
	}
	bound, err := boundHit(w, good[0])
	if err != nil {
		return result{}, err
	}
	r, err := rounds(p, few, side(w, false, cacheSize, measure(0)), side(w, true, cacheSize, measure(1)),
		func() (float64, error) {
			return single(context.Background(), p.span(), func(context.Context) error { return bound(1) })
		})
	r.note = fmt.Sprintf(
		"for the broken tenants STS was asked %d times in all rounds by ours, %d times by the reference, which was slowed down by it.",
		asked[0].Load(), asked[1].Load())
	return r, err
}

// mixed has callers ask for good and bad tenants at random, and returns how
// long the good ones took. The bad ones have to fail.
func mixed(get getter, good, bad []*tenant, callers int, until time.Time) ([]time.Duration, error) {
	var mu sync.Mutex
	var samples []time.Duration
	ctx, cancel := context.WithDeadline(context.Background(), until.Add(time.Minute))
	defer cancel()
	errs := make([]error, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i))) //nolint:gosec // the same sequence each time
			var own []time.Duration
			for errs[i] == nil && (len(own) == 0 || time.Now().Before(until)) {
				n := random.IntN(len(good) + len(bad))
				if n >= len(good) {
					if err := get(ctx, bad[n-len(good)]); err == nil {
						errs[i] = errors.New("a tenant got a role that does not trust it")
					}
					continue
				}
				start := time.Now()
				errs[i] = get(ctx, good[n])
				own = append(own, time.Since(start))
			}
			mu.Lock()
			defer mu.Unlock()
			samples = append(samples, own...)
		})
	}
	wg.Wait()
	return samples, errors.Join(errs...)
}
