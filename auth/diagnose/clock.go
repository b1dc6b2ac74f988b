package diagnose

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/internal/awsname"
	"github.com/workloadid/workloadid/internal/transport"
)

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
	skew, who := e.skew(ctx)
	const ntp = "synchronize the clocks (chronyc tracking, timedatectl)"
	clock := Field{Name: "clock of " + who, Observed: fmt.Sprintf("%s off", skew.Round(time.Second)), Expected: "0s", Differs: true}
	switch {
	case !c.Expiry.After(now):
		return e.expired()
	case skew.Abs() > skewFail:
		return fail("K11", ntp, "this machine's clock is more than a minute %s", direction(skew, who)).with(clock)
	case c.IssuedAt.After(now.Add(skewFail)):
		return fail("K11", ntp, "the token was issued in the future: the cluster's clock is ahead of this machine's").
			with(differs("iat", stamp(c.IssuedAt), "not after "+stamp(now)))
	case c.NotBefore.After(now.Add(skewFail)):
		return fail("K11", ntp, "the token is not valid yet").with(differs("nbf", stamp(c.NotBefore), "not after "+stamp(now)))
	case skew.Abs() > skewWarn:
		return Finding{Result: Warn, Class: "K11", Remedy: ntp,
			Message: "this machine's clock is more than half a minute " + direction(skew, who)}.with(clock)
	case c.Expiry.Before(now.Add(time.Minute)):
		return Finding{Result: Warn, Class: e.cloud.old, Remedy: "use a fresh token", Message: "the token ends within a minute"}.
			with(same("exp", stamp(c.Expiry)))
	}
	return pass("valid until %s", stamp(c.Expiry)).with(same("exp", stamp(c.Expiry)))
}

func direction(skew time.Duration, who string) string {
	if skew > 0 {
		return "behind " + who
	}
	return "ahead of " + who
}

// expired tells a program that holds an old copy from a token that nobody renews.
func (e *examination) expired() Finding {
	c := e.token.claims
	field := differs("exp", stamp(c.Expiry), "after "+stamp(e.Now()))
	if e.Token != "" && e.TokenFile != "" {
		if content, err := readToken(e.TokenFile); err == nil {
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

// skew is by how much this machine is behind a server, and which one: the largest difference of those that answer.
func (e *examination) skew(ctx context.Context) (largest time.Duration, who string) {
	consider := func(name string, date, asked time.Time) {
		if d := date.Sub(asked); !date.IsZero() && d.Abs() > largest.Abs() {
			largest, who = d, name
		}
	}
	if e.cloud.readsIssuer {
		date, asked := e.cloudDate(ctx)
		consider(e.cloud.name, date, asked)
	}
	if e.RESTConfig != nil {
		date, asked := e.apiServerDate(ctx)
		consider("the API server", date, asked)
	}
	return largest, who
}

// cloudDate asks the token service for nothing, only to see its clock.
func (e *examination) cloudDate(ctx context.Context) (date, asked time.Time) {
	opts := e.resolved()
	client, err := e.pool.For(opts.HTTPClient, opts.ProxyURL)
	if err != nil {
		return date, asked
	}
	return dateOf(ctx, client, e.clockURL(opts.STSRegion), e.Now)
}

func (e *examination) clockURL(region string) string {
	switch e.Provider.GetName() {
	case "azure":
		host := strings.TrimPrefix(e.Getenv("AZURE_AUTHORITY_HOST"), "https://")
		return "https://" + firstOf(strings.TrimSuffix(host, "/"), "login.microsoftonline.com") + "/common/v2.0/.well-known/openid-configuration"
	case "gcp":
		return "https://sts.googleapis.com/v1/token"
	}
	suffix := "amazonaws.com"
	region = firstOf(region, firstOf(e.Getenv("AWS_REGION"), "us-east-1"))
	if p, ok := awsname.PartitionOf(region); ok && p.Name == "aws-cn" {
		suffix += ".cn"
	}
	return "https://sts." + region + "." + suffix + "/"
}

func (e *examination) apiServerDate(ctx context.Context) (date, asked time.Time) {
	client, err := rest.HTTPClientFor(e.RESTConfig)
	if err != nil {
		return date, asked
	}
	base, _, err := rest.DefaultServerUrlFor(e.RESTConfig)
	if err != nil {
		return date, asked
	}
	return dateOf(ctx, transport.Guard(client), base.ResolveReference(&url.URL{Path: "/version"}).String(), e.Now)
}

// dateOf is zero if a server does not answer, or not with its own time.
func dateOf(ctx context.Context, client *http.Client, address string, now func() time.Time) (date, asked time.Time) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return date, asked
	}
	asked = now()
	resp, err := client.Do(req)
	if err != nil {
		return time.Time{}, asked
	}
	defer resp.Body.Close() //nolint:errcheck // is of no use
	took := now().Sub(asked)
	if resp.Header.Get("Age") != "" { // a cache's
		return time.Time{}, asked
	}
	date, err = http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return time.Time{}, asked
	}
	return date, asked.Add(took / 2).Truncate(time.Second)
}
