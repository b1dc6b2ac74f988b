package soak

import (
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

var (
	soakTime    = flag.Duration("soak.time", minTime, "how long the load lasts")
	soakTenants = flag.Int("soak.tenants", 2000, "number of ServiceAccounts")
	soakRate    = flag.Int("soak.rate", 2000, "calls a second")
	soakOnly    = flag.String("soak.only", "",
		"of the phases between the warm-up and the calm one, play only that of this name")
	soakSeed = flag.Uint64("soak.seed", rand.Uint64(), "of what happens to the tenants")
)

// minTime is what the phases need: in less, no credential comes to its end, and
// no fault is felt.
const minTime = 40 * time.Second

func TestSoak(t *testing.T) {
	if *soakTime < minTime {
		t.Fatalf("the soak takes at least %s, not %s: in less, credentials do not come to their end", minTime, *soakTime)
	}
	// Watches complain while the API server is down, and servers when
	// connections are cut, as they should.
	log.SetOutput(io.Discard)
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	limit := time.AfterFunc(2**soakTime+10*time.Minute, func() { panic("the soak does not end") })
	defer limit.Stop()
	before := takeStock()
	var kept any
	var exchanges, peak int64
	t.Run("load", func(t *testing.T) {
		w := newEnvironment(t)
		kept = w.lasting()
		w.run(t)
		peak = int64(w.stalls.goroutines)
		for _, s := range w.allSides {
			exchanges += w.exchanges(s)
		}
	})
	if t.Failed() && exchanges == 0 {
		return // it broke off, and left what it had
	}
	before.compare(t, exchanges, peak)
	if kept == nil {
		t.Error("there was no load")
	}
}

// run is the load from its start to its end.
func (w *environment) run(t *testing.T) {
	w.warm(t)
	w.phases[0].end()
	w.loadBegan = time.Now()
	end := w.startLoad(t)
	for _, p := range w.phases[1:] {
		w.enter(p)
		p.play(t, w)
		p.end()
	}
	end()
	w.loadTook = time.Since(w.loadBegan)
	w.serveEarly(t)
	w.settle(t)
	fmt.Println(w.report())
	w.checkCounts(t)
	w.checkLoad(t)
	w.checkFaults(t)
	w.violations.report(t)
}
