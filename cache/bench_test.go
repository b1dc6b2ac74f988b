package cache

import (
	"context"
	"runtime"
	"testing"
	"time"

	"golang.org/x/time/rate"
)

func BenchmarkHit(b *testing.B) {
	c := newTestCache(b)
	m := &minter{mint: hourly}
	if _, _, err := c.GetOrSet(b.Context(), m.request(1, "")); err != nil {
		b.Fatal(err)
	}
	k, object := key(1), InvolvedObject{Kind: "Bucket", Name: "b", Namespace: "ns", Operation: "reconcile"}
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := c.Get(k, object, 0, time.Time{}); !ok {
			b.Fatal("miss")
		}
	}
}

func BenchmarkHitParallel(b *testing.B) {
	c := newTestCache(b)
	m := &minter{mint: hourly}
	if _, _, err := c.GetOrSet(b.Context(), m.request(1, "")); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, ok := c.Get(key(1), InvolvedObject{}, 0, time.Time{}); !ok {
				b.Fatal("miss")
			}
		}
	})
}

func BenchmarkMiss(b *testing.B) {
	c := newTestCache(b, WithRate(rate.Inf, 0))
	t := token("t", time.Hour)
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		n++
		_, _, err := c.GetOrSet(b.Context(), Request{Key: key(n), Mint: plain(func(context.Context) (Token, error) {
			return t, nil
		})})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBytesPerEntry reports what an entry costs beyond the token itself.
func BenchmarkBytesPerEntry(b *testing.B) {
	const entries = 100_000
	for b.Loop() {
		before := heap()
		c, err := NewTokenCache(entries, WithRate(rate.Inf, 0))
		if err != nil {
			b.Fatal(err)
		}
		t := token("t", time.Hour)
		for i := range entries {
			if _, _, err := c.GetOrSet(b.Context(), Request{Key: key(i), Mint: plain(func(context.Context) (Token, error) {
				return t, nil
			})}); err != nil {
				b.Fatal(err)
			}
		}
		after := heap()
		b.ReportMetric(float64(after-before)/entries, "B/entry")
		c.Close()
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // fits
}
