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
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/kube"
	"github.com/workloadid/workloadid/internal/doctor/internal/reason"
	"github.com/workloadid/workloadid/internal/transport"
)

// tolerance is the clock skew that every service accepts.
const tolerance = 5 * time.Minute

// checkTime compares this machine's clock with that of the API server. The exchange compares the token's times with the cloud's.
func (e *examination) checkTime(ctx context.Context, c *doctor.Claims) doctor.Finding {
	now := e.Now()
	behind, known := time.Duration(0), false
	if e.RESTConfig != nil {
		behind, known = kube.Skew(ctx, e.RESTConfig, e.Now)
	}
	if ahead := -behind; known && ahead.Abs() > tolerance {
		direction := "ahead of"
		if ahead < 0 {
			direction = "behind"
		}
		return doctor.Failed(reason.ClockSkew, doctor.Do("Synchronize this machine's clock (timedatectl, chronyc tracking)."),
			"This machine's clock is %s %s the API server.", approximate(ahead), direction).Compare("this machine", stamp(now), "expected", stamp(now.Add(-ahead)))
	}
	if !c.Expiry.After(now) {
		return e.expired(ctx, c, now)
	}
	f := doctor.Passed("The token is valid until %s.", stamp(c.Expiry))
	if !known {
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

// reachCloud asks the token service of the exchange once, without credentials. nil: it answers, even with a redirect.
func (e *examination) reachCloud(ctx context.Context) error {
	if e.public == nil {
		err := errors.New("the provider names no token service")
		if req, invalid := http.NewRequestWithContext(ctx, http.MethodGet, e.tokenServiceURL(), http.NoBody); invalid == nil && req.URL.Host != "" {
			resp, failed := e.client(nil).Do(req)
			if err = failed; resp != nil {
				_ = resp.Body.Close() // of no use
				err = nil
			}
		}
		e.public = &err
	}
	return *e.public
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
