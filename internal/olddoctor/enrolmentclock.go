package doctor

import (
	"context"
	"time"
)

// readClock asks the hub for its time, or else the cluster itself.
func (e *enrolment) readClock(ctx context.Context) {
	if e.HubRESTConfig != nil {
		e.whose, e.clock = "the hub", clockOf(ctx, e.HubRESTConfig, named("the hub", e.HubRESTConfig), e.Now)
	}
	if !e.clock.known && e.SpokeRESTConfig != nil {
		e.whose, e.clock = "the cluster", clockOf(ctx, e.SpokeRESTConfig, named("the cluster", e.SpokeRESTConfig), e.Now)
	}
}

// time is the hub's, if this machine's clock differs from it.
func (e *enrolment) time() time.Time { return e.clock.apply(e.Now()) }

func (e *enrolment) checkClock(context.Context) Finding {
	var s skew
	s.consider(e.whose, e.clock)
	switch {
	case e.whose == "":
		return skip("there is no clock to compare this machine's with")
	case !s.compared:
		return skip("the clusters tell no time, so this machine's clock counts")
	case s.by.Abs() > skewWarn:
		return s.off("O40")
	}
	return pass("this machine's clock agrees with that of %s", e.whose)
}
