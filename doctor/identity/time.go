package identity

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/reason"
	"github.com/workloadid/workloadid/internal/transport"
)

// tolerance is the clock skew that every service accepts.
const tolerance = 5 * time.Minute

// checkTime judges by the clock of the API server or of the cloud, if one of them tells the time.
func (e *examination) checkTime(ctx context.Context, c *doctor.Claims) doctor.Finding {
	now := e.Now()
	who, clock := e.askTime(ctx)
	if ahead := -clock.ahead; clock.known && ahead.Abs() > tolerance {
		direction := "ahead of"
		if ahead < 0 {
			direction = "behind"
		}
		return doctor.Failed(reason.ClockSkew, doctor.Do("Synchronize this machine's clock (timedatectl, chronyc tracking)."),
			"This machine's clock is %s %s %s.", approximate(ahead), direction, who).Compare("this machine", stamp(now), "expected", stamp(now.Add(-ahead)))
	}
	clocks := doctor.Do("Synchronize the clocks of the control plane and of this machine.")
	switch {
	case !c.Expiry.After(now):
		return e.expired(ctx, c, now)
	case c.IssuedAt.After(now.Add(tolerance)):
		return doctor.Failed(reason.ClockSkew, clocks, "The token was issued in the future.").Compare("iat", stamp(c.IssuedAt), "now", stamp(now))
	case c.NotBefore.After(now.Add(tolerance)):
		return doctor.Failed(reason.ClockSkew, clocks, "The token is not valid yet.").Compare("nbf", stamp(c.NotBefore), "now", stamp(now))
	}
	f := doctor.Passed("The token is valid until %s.", stamp(c.Expiry))
	if !clock.known {
		f.Message += " The clock was not compared with another one."
	}
	return f
}

// approximate rounds a duration for people.
func approximate(d time.Duration) string {
	d = d.Abs()
	if d >= 90*time.Minute {
		return fmt.Sprintf("%.0f h", d.Hours())
	}
	return fmt.Sprintf("%.0f min", d.Minutes())
}

// expired distinguishes a program that holds an old copy from a token that is never renewed.
func (e *examination) expired(ctx context.Context, c *doctor.Claims, now time.Time) doctor.Finding {
	if e.Token != "" && e.TokenFile != "" {
		content, err := readFile(ctx, e.TokenFile)
		if other, parsing := parseClaims(strings.TrimSpace(content)); err == nil && parsing == nil && other.Expiry.After(now) {
			return doctor.Failed(reason.TokenExpired, doctor.Do("Read the token file before each use, and restart the program."),
				"The token has expired, but its file was renewed: the program holds an old copy.").Compare("exp", stamp(c.Expiry), "now", stamp(now))
		}
	}
	return doctor.Failed(reason.TokenExpired, doctor.Do("Request a fresh token, and read the token file before each use."), "The token has expired.").Compare("exp", stamp(c.Expiry), "now", stamp(now))
}

// contact is the result of a request that needs no credentials.
type contact struct {
	// ahead is by how much the server's clock is ahead of this machine's, if known.
	ahead time.Duration
	known bool
	err   error
}

// askTime asks the API server, or else the cloud's token service.
func (e *examination) askTime(ctx context.Context) (who string, clock contact) {
	if e.RESTConfig == nil {
		return e.cloud.service, *e.reachCloud(ctx)
	}
	httpClient, address, err := e.apiServer("/version")
	if err != nil {
		return "", contact{err: err}
	}
	return "the API server", e.reach(ctx, httpClient, address)
}

// apiServer returns the way to a path of the cluster's API server.
func (e *examination) apiServer(path string) (*http.Client, string, error) {
	httpClient, err := rest.HTTPClientFor(e.RESTConfig)
	if err != nil {
		return nil, "", err
	}
	base, _, err := rest.DefaultServerUrlFor(e.RESTConfig)
	if err != nil {
		return nil, "", err
	}
	return transport.Guard(httpClient), base.ResolveReference(&url.URL{Path: path}).String(), nil
}

// reachCloud asks the token service of the exchange once, without credentials.
func (e *examination) reachCloud(ctx context.Context) *contact {
	if e.public != nil {
		return e.public
	}
	c := contact{err: errors.New("the provider names no token service")}
	if address := e.tokenServiceURL(); address != "" {
		c = e.reach(ctx, e.client(nil), address)
	}
	e.public = &c
	return e.public
}

// tokenServiceURL returns the address of the exchange, "" if the provider does not tell it.
func (e *examination) tokenServiceURL() string {
	p, ok := e.Provider.(interface {
		TokenServiceURL(opts *auth.Options) (string, error)
	})
	if !ok {
		return ""
	}
	address, _ := p.TokenServiceURL(e.resolved()) // identifiers reports a missing region
	return address
}

func (e *examination) reach(ctx context.Context, httpClient *http.Client, address string) contact {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return contact{err: err}
	}
	asked := e.Now()
	resp, err := httpClient.Do(req)
	if resp == nil { // a redirect is both an error and an answer
		return contact{err: err}
	}
	defer resp.Body.Close() //nolint:errcheck // of no use
	date, err := http.ParseTime(resp.Header.Get("Date"))
	return contact{ahead: date.Sub(asked), known: err == nil && resp.Header.Get("Age") == ""}
}
