package doctor

import (
	"context"
	"time"
)

// time is that of the server, if this machine's clock differs from it: expiry is judged by the cluster's clocks.
func (b *bootstrapping) time() time.Time { return b.clock.apply(b.Now()) }

func (b *bootstrapping) checkClock(ctx context.Context) Finding {
	if b.RESTConfig != nil {
		if own := clockOf(ctx, b.RESTConfig, named("the API server of the kubeconfig", b.RESTConfig), b.Now); own.known {
			b.clock = own
		}
	}
	var s skew
	s.consider("the server", b.clock)
	switch {
	case !b.clock.answered:
		return skip("the server tells no time, see bootstrap-server")
	case !s.compared:
		return skip("the server's answer has no time in it, so this machine's clock counts")
	case s.by.Abs() > skewWarn:
		return s.off("B34")
	}
	return pass("this machine's clock agrees with the server's")
}
