package doctor_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/internal/olddoctor"
)

// roundTrip answers as a function does.
type roundTrip func(r *http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// wrapper is a provider of somebody else's.
type wrapper struct{ auth.Provider }

// The clock that counts is that of the token service which the exchange asks: no other cloud is asked for the time.
func TestClockIsTheTokenServices(t *testing.T) {
	t.Setenv("AWS_REGION", "")
	const endpoint = "https://vpce-0123456789abcdef0-abcdefgh.sts.eu-central-1.vpce.amazonaws.com"
	for want, tt := range map[string]struct {
		provider auth.Provider
		options  []auth.Option
	}{
		"sts.us-iso-east-1.c2s.ic.gov":           {&aws.Provider{}, []auth.Option{auth.WithSTSRegion("us-iso-east-1")}},
		"sts.us-isob-east-1.sc2s.sgov.gov":       {&aws.Provider{}, []auth.Option{auth.WithSTSRegion("us-isob-east-1")}},
		"sts.eu-isoe-west-1.cloud.adc-e.uk":      {&aws.Provider{}, []auth.Option{auth.WithSTSRegion("eu-isoe-west-1")}},
		"sts.us-isof-south-1.csp.hci.ic.gov":     {&aws.Provider{}, []auth.Option{auth.WithSTSRegion("us-isof-south-1")}},
		"sts.eusc-de-east-1.amazonaws.eu":        {&aws.Provider{}, []auth.Option{auth.WithSTSRegion("eusc-de-east-1")}},
		"sts.cn-north-1.amazonaws.com.cn":        {&aws.Provider{}, []auth.Option{auth.WithSTSRegion("cn-north-1")}},
		"sts.cn-northwest-1.amazonaws.com.cn":    {wrapper{&aws.Provider{}}, []auth.Option{auth.WithSTSRegion("cn-northwest-1")}},
		"sts.us-gov-west-1.amazonaws.com":        {&aws.Provider{}, []auth.Option{auth.WithSTSRegion("us-gov-west-1")}},
		"sts.eusc-de-east-2.amazonaws.eu":        {wrapper{&aws.Provider{}}, []auth.Option{auth.WithSTSRegion("eusc-de-east-2")}},
		"sts.us-east-1.amazonaws.com":            {&aws.Provider{}, nil},
		"sts-fips.us-east-2.api.aws":             {&aws.Provider{UseFIPSEndpoint: true, UseDualStackEndpoint: true}, []auth.Option{auth.WithSTSRegion("us-east-2")}},
		endpoint[len("https://"):]:               {&aws.Provider{}, []auth.Option{auth.WithSTSEndpoint(endpoint)}},
		"sts.corp.example:8443":                  {&aws.Provider{AllowedSTSHosts: []string{"sts.corp.example:8443"}}, []auth.Option{auth.WithSTSEndpoint("https://sts.corp.example:8443/")}},
		"nobody, of an endpoint that is none":    {&aws.Provider{}, []auth.Option{auth.WithSTSEndpoint("https://evil.example")}},
		"login.microsoftonline.us":               {&azure.Provider{AuthorityHost: "https://login.microsoftonline.us"}, nil},
		"login.chinacloudapi.cn":                 {&azure.Provider{}, []auth.Option{azure.WithAuthorityHost("https://login.chinacloudapi.cn/")}},
		"login.microsoftonline.com":              {&azure.Provider{}, nil},
		"nobody, of an authority that is none":   {&azure.Provider{}, []auth.Option{azure.WithAuthorityHost("https://evil.example")}},
		"sts.googleapis.com":                     {&gcp.Provider{}, nil},
		"sts.s3nsapis.fr":                        {&gcp.Provider{UniverseDomain: "s3nsapis.fr"}, nil},
		"sts.europe-west3.rep.googleapis.com":    {&gcp.Provider{}, []auth.Option{auth.WithSTSEndpoint("https://sts.europe-west3.rep.googleapis.com")}},
		"nobody, of Google's endpoint elsewhere": {&gcp.Provider{}, []auth.Option{auth.WithSTSEndpoint("https://sts.evil.example")}},
	} {
		w := newWorld(t, tt.provider.GetName())
		asked := make(chan string, 10)
		outside := roundTrip(func(r *http.Request) (*http.Response, error) {
			asked <- r.URL.Host
			return nil, errors.New("no")
		})
		w.config.Provider, w.config.Options = tt.provider, append(tt.options, auth.WithHTTPClient(&http.Client{Transport: outside}))
		w.config.Skip = []string{"exchange"}
		w.run()
		close(asked)
		var hosts []string
		for host := range asked {
			hosts = append(hosts, host)
		}
		slices.Sort(hosts)
		if hosts = slices.Compact(hosts); len(hosts) == 0 && want[:6] != "nobody" || len(hosts) > 0 && !slices.Equal(hosts, []string{want}) {
			t.Errorf("%s: asked %q", want, hosts)
		}
	}
}

// STS sends whoever only looks at it elsewhere, and tells the time with that.
func TestClockOfARedirect(t *testing.T) {
	w := newWorld(t, "aws")
	w.config.Skip = []string{"exchange"}
	w.config.Options = []auth.Option{auth.WithSTSRegion("eu-central-1"), auth.WithHTTPClient(&http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		rec := httptest.NewRecorder()
		rec.Header().Set("Date", time.Now().UTC().Format(http.TimeFormat))
		http.Redirect(rec, r, "https://aws.amazon.com/iam", http.StatusFound)
		return rec.Result(), nil
	})})}
	if f := w.run().Of("time"); f.Result != doctor.Pass {
		t.Errorf("%+v", f)
	}
}
