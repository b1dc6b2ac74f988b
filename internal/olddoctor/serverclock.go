package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/internal/transport"
)

// serverClock is what a server says of the time.
type serverClock struct {
	// ahead is by how much it is ahead of this machine's clock, if it is known.
	ahead time.Duration
	known bool
	// answered says that the server did, with a time or without.
	answered bool
	err      error
}

// apply turns this machine's time into the server's. A difference that may be that of a slow answer does not count.
func (c serverClock) apply(now time.Time) time.Time {
	if !c.known || c.ahead.Abs() <= skewWarn {
		return now
	}
	return now.Add(c.ahead)
}

var errNoDate = errors.New("the answer has no time in it")

// readDate takes the time from an answer (RFC 9110, section 6.6.1), unless it is that of a cache. asked and took are by this
// machine's clock.
func readDate(header http.Header, asked time.Time, took time.Duration) serverClock {
	date, err := http.ParseTime(header.Get("Date"))
	if err != nil || header.Get("Age") != "" {
		return serverClock{answered: true, err: errNoDate}
	}
	return serverClock{ahead: date.Sub(asked.Add(took / 2).Truncate(time.Second)), known: true, answered: true}
}

// dateOf asks a server for nothing, only to see its clock.
func dateOf(ctx context.Context, client *http.Client, address, who string, now func() time.Time) serverClock {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return ending(ctx, who, func() serverClock { return askDate(ctx, client, address, now) },
		func(err error) serverClock { return serverClock{err: err} })
}

func askDate(ctx context.Context, client *http.Client, address string, now func() time.Time) serverClock {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return serverClock{err: err}
	}
	asked := now()
	resp, err := client.Do(req)
	if resp == nil { // a redirect is an error and an answer: STS answers with one
		return serverClock{err: err}
	}
	defer resp.Body.Close() //nolint:errcheck // is of no use
	return readDate(resp.Header, asked, now().Sub(asked))
}

// clockOf is the clock of an API server. Everybody may ask for its version.
func clockOf(ctx context.Context, config *rest.Config, who string, now func() time.Time) serverClock {
	client, err := httpClientFor(ctx, config)
	if err != nil {
		return serverClock{err: err}
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return serverClock{err: err}
	}
	return dateOf(ctx, transport.Guard(client), base.ResolveReference(&url.URL{Path: "/version"}).String(), who, now)
}

// skew is how this machine's clock compares with the clocks of servers.
type skew struct {
	by       time.Duration // the largest difference, more than 0 if this machine is behind
	who      string
	compared bool
	err      error // of the last one that told no time
}

func (s *skew) consider(who string, clock serverClock) {
	switch {
	case !clock.known:
		s.err = clock.err
		return
	case !s.compared || clock.ahead.Abs() > s.by.Abs():
		s.by, s.who = clock.ahead, who
	}
	s.compared = true
}

func (s skew) direction() string {
	if s.by > 0 {
		return "behind " + s.who
	}
	return "ahead of " + s.who
}

func (s skew) field() Field {
	return Field{Name: "clock of " + s.who, Observed: fmt.Sprintf("%s off", s.by.Round(time.Second)), Expected: "0s",
		Differs: true}
}

// off is a doubt: what expires is judged by the other clock.
func (s skew) off(class string) Finding {
	return Finding{Result: Warn, Class: class, Remedy: ntp, Message: "this machine's clock is " + s.direction() +
		"; what ends is judged by the clock of " + s.who}.with(s.field())
}
