package server

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

// Namespaces come and go, and an exhausted bucket cannot be renewed by that.
func TestBucketsOfIdleNamespacesGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &namespaceLimits{buckets: map[string]*rate.Limiter{}}
		for i := range 100 {
			if err := l.take(fmt.Sprint("idle-", i)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(namespaceRefill)
		for l.take("busy") == nil {
		}
		time.Sleep(time.Second)
		if err := l.take("busy"); err != nil {
			t.Error(err)
		}
		if n := len(l.buckets); n != 1 {
			t.Errorf("%d buckets", n)
		}
	})
}
