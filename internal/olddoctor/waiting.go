package doctor

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// waits are whom a run has waited for, so that it can say where its time went. A run has one, in its context.
type waits struct {
	mu   sync.Mutex
	list []wait
}

type wait struct {
	who  string
	took time.Duration
	// cut says that the time was over before there was an answer.
	cut bool
}

type waitsKey struct{}

func withWaits(ctx context.Context) (context.Context, *waits) {
	w := &waits{}
	return context.WithValue(ctx, waitsKey{}, w), w
}

// ensureWaits is withWaits for what may be within another run already.
func ensureWaits(ctx context.Context) (context.Context, *waits) {
	if w, ok := ctx.Value(waitsKey{}).(*waits); ok {
		return ctx, w
	}
	return withWaits(ctx)
}

// waiting begins a wait for somebody; what it returns ends it. The context is the one that bounds the request.
func waiting(ctx context.Context, who string) func() {
	w, ok := ctx.Value(waitsKey{}).(*waits)
	if !ok {
		return func() {}
	}
	began := time.Now()
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.list = append(w.list, wait{who, time.Since(began), ctx.Err() != nil})
	}
}

func (w *waits) number() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.list)
}

// settle makes the finding of a check that found no time one about who has used it. before is the number of waits before the
// check.
func (w *waits) settle(ctx context.Context, f Finding, before int) Finding {
	if ctx.Err() == nil || f.Result != Unknown {
		return f
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.ContainsFunc(w.list[before:], func(one wait) bool { return one.cut }) {
		return f // it asked nobody, or was answered
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return unknown("the examination was interrupted", "run it again")
	}
	return w.longest()
}

// longest names whoever was waited for most. Of two that hang for about the same time it is the first, in every run.
func (w *waits) longest() Finding {
	total := map[string]time.Duration{}
	var order []string
	for _, one := range w.list {
		if _, known := total[one.who]; !known {
			order = append(order, one.who)
		}
		total[one.who] += one.took
	}
	most := ""
	for _, who := range order {
		if most == "" || total[who] > total[most]+total[most]/5 {
			most = who
		}
	}
	f := unknown("there was no time left: it went to waiting for "+most,
		"see why that does not answer, or allow more time, a minute at most")
	return f.with(same("waited for "+most, total[most].Round(time.Millisecond).String()))
}

// named adds the host of a cluster's address, as far as that is known.
func named(who string, config *rest.Config) string {
	if config == nil {
		return who
	}
	if u, err := url.Parse(config.Host); err == nil && u.Host != "" {
		return who + " " + shown(u.Host)
	}
	return who
}

// hostOf is the host of an address that comes from a stranger.
func hostOf(address string) string {
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		return shown(u.Host)
	}
	return "that has no name"
}
