package doctor

import (
	"context"
	"strings"
	"time"

	"github.com/workloadid/workloadid/internal/transport"
)

const ntp = "synchronize the clocks (chronyc tracking, timedatectl)"

const (
	skewWarn = 30 * time.Second
	// skewFail is what Google and Kubernetes tolerate.
	skewFail = time.Minute
)

// Check 5.
func (e *examination) checkTime(ctx context.Context) Finding {
	if f, none := e.noToken(); none {
		return f
	}
	c, now := e.token.claims, e.Now()
	skew := e.skew(ctx)
	switch {
	case skew.by.Abs() > skewFail:
		return e.farOff(skew)
	case !c.Expiry.After(now):
		return e.expired(ctx)
	case c.IssuedAt.After(now.Add(skewFail)):
		return fail("K11", ntp, "the token was issued in the future: the cluster's clock is ahead of this machine's").
			with(differs("iat", stamp(c.IssuedAt), "not after "+stamp(now)))
	case c.NotBefore.After(now.Add(skewFail)):
		return fail("K11", ntp, "the token is not valid yet").with(differs("nbf", stamp(c.NotBefore), "not after "+stamp(now)))
	case skew.by.Abs() > skewWarn:
		return Finding{Result: Warn, Class: "K11", Remedy: ntp,
			Message: "this machine's clock is more than half a minute " + skew.direction()}.with(skew.field())
	case c.Expiry.Before(now.Add(time.Minute)):
		return Finding{Result: Warn, Class: e.cloud.old, Remedy: "use a fresh token", Message: "the token ends within a minute"}.
			with(same("exp", stamp(c.Expiry)))
	}
	return skew.judge(c.Expiry).with(same("exp", stamp(c.Expiry)))
}

// farOff is a failure that does not keep the exchange from being tried: the API server's token and the requests that bring it
// to a cloud do not depend on this machine's clock.
func (e *examination) farOff(s skew) Finding {
	f := fail("K11", ntp, "this machine's clock is more than a minute %s", s.direction()).with(s.field())
	f.tentative = e.token.claims.Expiry.After(e.Now().Add(s.by))
	return f
}

// life is how long the token lives from its start. That of one without a start is counted from now.
func (c *Claims) life(now time.Time) time.Duration {
	if c.IssuedAt.IsZero() {
		return c.Expiry.Sub(now)
	}
	return c.Expiry.Sub(c.IssuedAt)
}

// judge passes nothing on the word of a clock that was compared with nobody's.
func (s skew) judge(expiry time.Time) Finding {
	switch {
	case s.compared:
		return pass("valid until %s", stamp(expiry))
	case s.err == nil:
		return skip("valid until " + stamp(expiry) + " by this machine's clock; there is nobody to compare that with")
	}
	return unknown("valid until "+stamp(expiry)+" by this machine's clock, which nobody could be compared with: "+
		transport.Message(s.err),
		"see that this machine's clock is right: timedatectl")
}

// expired tells a program that holds an old copy from a token that nobody renews.
func (e *examination) expired(ctx context.Context) Finding {
	c := e.token.claims
	field := differs("exp", stamp(c.Expiry), "after "+stamp(e.Now()))
	if e.Token != "" && e.TokenFile != "" {
		if content, err := readToken(ctx, e.TokenFile); err == nil {
			if other, err := ParseClaims(strings.TrimSpace(content)); err == nil && other.Expiry.After(e.Now()) {
				return fail(firstOf(e.cloud.old, "K10"), "read the token file before each use; restart the program",
					"the token has expired, but the file was renewed: the program holds an old copy").with(field)
			}
		}
	}
	remedy := "request a fresh token, and read the token file before each use"
	if e.Client != nil && e.TokenFile == "" {
		remedy = "synchronize the clock of the cluster's control plane"
	}
	return fail(e.cloud.old, remedy, "the token has expired").with(field)
}

// skew is the largest difference to the clocks of those that answer.
func (e *examination) skew(ctx context.Context) skew {
	var s skew
	if e.cloud.readsIssuer {
		s.consider(e.cloud.name, e.reachPublic(ctx).clock)
	}
	if e.RESTConfig != nil {
		s.consider("the API server", clockOf(ctx, e.RESTConfig, e.apiServer(), e.Now))
	}
	return s
}

// contact is what came of asking a public host.
type contact struct {
	clock   serverClock
	reached bool
	// untrusted says that this machine does not believe the certificate that was shown.
	untrusted bool
}

// reachPublic asks the cloud's token service for nothing, only to see its clock and whether it can be reached, and does so
// once.
func (e *examination) reachPublic(ctx context.Context) *contact {
	if e.public != nil {
		return e.public
	}
	opts := e.resolved()
	client := e.pool.For(opts.HTTPClient, opts.ProxyURL)
	address, err := e.clockURL(opts)
	if err != nil {
		return &contact{clock: serverClock{err: err}}
	}
	clock := dateOf(ctx, client, address, e.cloud.name+" at "+hostOf(address), e.Now)
	if ctx.Err() != nil {
		return &contact{clock: clock}
	}
	e.public = &contact{clock: clock, reached: clock.answered, untrusted: untrusted(clock.err)}
	return e.public
}
