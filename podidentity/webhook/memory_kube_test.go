package webhook_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/podscenario"
)

// Without the admission policy a tenant stores bindings of 1.2 MB each. The
// review of a pod without a binding reads them all.
func TestMemoryOfAReviewThatReadsLargeBindings(t *testing.T) {
	w := podscenario.New(t, kubetest.Start(t))
	storeLargeBindings(t, w, w.Namespace, 12)

	o := options()
	o.Bindings, o.Live = &lister{running: map[string]int{}, end: closed()}, w
	h := newHandler(t, o)
	peak := measure(func() {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				body := review(t, inNamespace(w.Namespace), `{"spec":{"serviceAccountName":"app","containers":[{"name":"a"}]}}`)
				for !post(t, h, "application/json", body).Allowed { // on a slow machine it asks for another try
				}
			})
		}
		all.Wait()
	})
	t.Logf("peak: %d MiB", peak>>20)
	if peak > 48<<20 {
		t.Errorf("%d MiB", peak>>20)
	}
}

// measure returns the growth of the heap while work runs.
func measure(work func()) uint64 {
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	done := make(chan struct{})
	go func() {
		defer close(done)
		work()
	}()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for peak := before.HeapAlloc; ; {
		select {
		case <-tick.C:
			runtime.ReadMemStats(&now)
			peak = max(peak, now.HeapAlloc)
		case <-done:
			return peak - before.HeapAlloc
		}
	}
}

// finalizers returns about 1.2 MB of finalizers.
func finalizers() (all []string) {
	for i := range 3800 {
		all = append(all,
			fmt.Sprintf("%s.example/%04d%s", strings.Repeat("a", 50)+"."+strings.Repeat("b", 60)+"."+strings.Repeat("c", 60)+"."+
				strings.Repeat("d", 60), i, strings.Repeat("x", 59)))
	}
	return all
}

func storeLargeBindings(t *testing.T, c client.Client, ns string, n int) {
	t.Helper()
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			b := bindingOf(ns, "other")
			b.Finalizers = finalizers()
			if err := c.Create(t.Context(), b); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}
