package soak

import (
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// stock is what a process has.
type stock struct {
	goroutines goleak.Option
	heap       uint64
}

func takeStock() stock { return stock{goroutines: goleak.IgnoreCurrent(), heap: heap()} }

func heap() uint64 {
	var m runtime.MemStats
	for range 3 {
		runtime.GC() // finalizers free more
	}
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

const (
	// maxLeft is the memory that may be left: what packages make once and keep,
	// such as schemes, about 4 MiB.
	maxLeft = 6 << 20
	// maxLeftEach is what an exchange may leave, in bytes: nothing, but memory
	// is not measured to the byte.
	maxLeftEach = 50
	// perGoroutine is what the runtime keeps for the next one of each that has
	// ended, in bytes.
	perGoroutine = 512
)

// compare fails if goroutines or memory are left after so many exchanges, with
// so many goroutines at once.
func (s stock) compare(t *testing.T, exchanges, peak int64) {
	t.Helper()
	var err error
	for over := time.Now().Add(20 * time.Second); time.Now().Before(over); {
		if err = goleak.Find(s.goroutines); err == nil {
			break
		}
	}
	if err != nil {
		t.Error(err)
	}
	left := int64(heap()) - int64(s.heap)
	t.Logf("%.1f MiB of memory are left after %d exchanges and at most %d goroutines", float64(left)/(1<<20),
		exchanges, peak)
	if most := maxLeft + exchanges*maxLeftEach + peak*perGoroutine; left > most {
		t.Errorf("%d bytes of memory are left after %d exchanges, more than %d", left, exchanges, most)
	}
}

// drainTime is until when the cache is rid of what has expired, a minute by its
// own words.
const drainTime = time.Minute

// settle waits until the cache is empty without anybody's doing.
func (w *environment) settle(t *testing.T) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	start := time.Now()
	for over := start.Add(w.maxDuration + drainTime); ; <-tick.C {
		switch s := w.tokens.Stats(); {
		case s.Items == 0 && s.Exchanges == 0 && s.Waiting == 0:
			t.Logf("the cache was empty %s after the last call", time.Since(start).Round(time.Second))
			return
		case time.Now().After(over):
			t.Errorf("the cache still holds %+v", s)
			return
		}
	}
}
