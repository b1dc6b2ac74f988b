package doctor_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/internal/olddoctor"
	"github.com/workloadid/workloadid/internal/transport"
)

// failing is a network in which every request fails in the same way.
type failing struct{ err error }

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.err }

func (f failing) client() *http.Client { return &http.Client{Transport: f} }

// A machine that reaches nobody blames no issuer; one that reaches the cloud does.
func TestNoWayOut(t *testing.T) {
	t.Parallel()
	unreachable := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ENETUNREACH}
	unresolved := &net.DNSError{Err: "no such host", Name: "issuer.example", IsNotFound: true}
	resolver := &net.DNSError{Err: "read udp 127.0.0.1:53: connection refused", Name: "issuer.example", IsTemporary: true}
	proxy := &net.OpError{Op: "proxyconnect", Net: "tcp", Err: syscall.ECONNREFUSED}
	for name, tt := range map[string]struct {
		issuer, cloud error // nil: works
		want          doctor.Result
		says          string
	}{
		"no network":                        {unreachable, unreachable, doctor.Unknown, "reaches AWS as little"},
		"no resolver":                       {resolver, resolver, doctor.Unknown, "reaches AWS as little"},
		"no name is found":                  {unresolved, unresolved, doctor.Unknown, "reaches AWS as little"},
		"a dead proxy":                      {proxy, proxy, doctor.Unknown, "proxy that this machine uses cannot be reached"},
		"a dead proxy for the issuer alone": {proxy, nil, doctor.Unknown, "proxy that this machine uses cannot be reached"},
		"a proxy that denies":               {&transport.ProxyError{StatusCode: 403}, nil, doctor.Unknown, "refuses to ask it"},
		"a proxy that finds nobody":         {&transport.ProxyError{StatusCode: 502}, nil, doctor.Fail, "cannot be reached from here"},
		"a private issuer":                  {unreachable, nil, doctor.Fail, "cannot be reached from here"},
		"a private name":                    {unresolved, nil, doctor.Fail, "cannot be reached from here"},
		"a broken zone of the issuer's":     {resolver, nil, doctor.Fail, "cannot be reached from here"},
	} {
		w := newWorld(t, "aws")
		w.withoutCluster, w.config.Annotations = true, w.account.Annotations
		w.write(w.sign(nil))
		w.config.IssuerClient = failing{tt.issuer}.client()
		if tt.cloud != nil {
			w.config.Options = []auth.Option{auth.WithHTTPClient(failing{tt.cloud}.client()), auth.WithSTSRegion("eu-central-1")}
		} else {
			w.config.Skip = []string{"exchange"}
		}
		report := w.run()
		f := report.Of("discovery")
		if f.Result != tt.want || !strings.Contains(f.Message, tt.says) || f.Remedy == "" || (f.Class == "") != (tt.want == doctor.Unknown) {
			t.Errorf("%s: %+v", name, f)
		}
		if strings.Contains(f.Remedy, "make the issuer public") != (tt.want == doctor.Fail) {
			t.Errorf("%s: %s", name, f.Remedy)
		}
		if tt.want == doctor.Unknown && report.ExitCode() != doctor.ExitUncertain {
			t.Errorf("%s: exit code %d\n%s", name, report.ExitCode(), report)
		}
		if keys := report.Of("keys"); keys.Result == doctor.Pass || keys.Result == doctor.Unknown || keys.Needs != 10 {
			t.Errorf("%s: %+v", name, keys)
		}
	}
}

// A proxy that was named is the way to the issuer too: where one is needed, there is no other.
func TestIssuerThroughTheProxy(t *testing.T) {
	var asked []string
	proxy := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.Host)
		rw.WriteHeader(http.StatusForbidden)
	}))
	defer proxy.Close()
	u, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, "aws")
	w.write(w.sign(nil))
	config := w.config
	config.ServiceAccount, config.Annotations = client.ObjectKey{}, w.account.Annotations
	config.Options = append(config.Options, auth.WithProxyURL(*u))
	config.Skip = []string{"exchange"}
	f := doctor.Run(t.Context(), config).Of("discovery")
	if f.Result != doctor.Unknown || !strings.Contains(f.Message, "refuses to ask it") || fmt.Sprint(asked) != "[CONNECT issuer.example:443]" {
		t.Errorf("asked %v: %+v", asked, f)
	}
}

// A clock that nobody was compared with is not called good, and one that is far off comes before what ends by it.
func TestClocksThatNobodySaw(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(w *world)
		want   doctor.Result
		says   string
	}{
		"the cloud is silent": {func(w *world) {
			w.config.Options = []auth.Option{auth.WithHTTPClient(failing{errNowhere}.client()), auth.WithSTSRegion("eu-central-1")}
		}, doctor.Unknown, "by this machine's clock, which nobody could be compared with"},
		"the cloud tells no time": {func(w *world) {
			w.config.Options = []auth.Option{auth.WithHTTPClient(&http.Client{Transport: dateless{w.cloud.Client().Transport}}), auth.WithSTSRegion("eu-central-1")}
		}, doctor.Unknown, "no time in it"},
		"compared": {func(*world) {}, doctor.Pass, "valid until"},
	} {
		w := newWorld(t, "aws")
		w.withoutCluster, w.config.Annotations = true, w.account.Annotations
		w.write(w.sign(nil))
		tt.change(w)
		if f := w.run().Of("time"); f.Result != tt.want || !strings.Contains(f.Message, tt.says) || (f.Remedy == "") != (tt.want == doctor.Pass) {
			t.Errorf("%s: %+v", name, f)
		}
	}
	w := newWorld(t, "generic")
	w.withoutCluster = true
	w.write(w.sign(nil))
	if f := w.run().Of("time"); f.Result != doctor.Skip || !strings.Contains(f.Message, "nobody to compare") {
		t.Errorf("%+v", f)
	}
}

type dateless struct{ next http.RoundTripper }

func (d dateless) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := d.next.RoundTrip(r)
	if err == nil {
		resp.Header.Del("Date")
	}
	return resp, err
}

// What stands in the way of this machine is no doubt where the exchange itself worked.
func TestExchangeRefutesDoubts(t *testing.T) {
	w := newWorld(t, "aws")
	w.config.IssuerClient = failing{&net.OpError{Op: "proxyconnect", Err: errors.New("refused")}}.client()
	report := w.run()
	for _, id := range []string{"discovery", "keys", "issuer-tls"} {
		if f := report.Of(id); f.Result != doctor.Skip || f.Remedy != "" {
			t.Errorf("%+v", f)
		}
	}
	// A private address and a private authority, which the cloud minds as little as it says.
	w = newWorld(t, "aws")
	issuer, err := authtest.NewIssuer(authtest.IssuerConfig{URL: "https://10.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	w.use(issuer)
	stranger := w.stranger()
	own, ok := stranger.Transport.(*http.Transport)
	if !ok {
		t.Fatal("no transport")
	}
	own.TLSClientConfig.RootCAs = nil
	w.config.IssuerClient = stranger
	report = w.run()
	for _, id := range []string{"token-format", "issuer", "issuer-tls", "exchange"} {
		if f := report.Of(id); f.Result != doctor.Pass {
			t.Errorf("%+v", f)
		}
	}
	w.config.Skip = []string{"exchange"}
	report = w.run()
	for _, id := range []string{"issuer", "issuer-tls"} {
		if f := report.Of(id); f.Result != doctor.Warn {
			t.Errorf("without the exchange: %+v", f)
		}
	}
}

// The issuer, who may be anybody, does not choose what this machine asks of its own network.
func TestKeysElsewhere(t *testing.T) {
	for name, address := range map[string]string{"private": "https://169.254.169.254/keys", "loopback": "https://127.0.0.1:6443/keys",
		"local name": "https://vault.internal/keys", "with a user": "https://user:pw@keys.example/", "no TLS": "http://keys.example/",
		"nowhere": "https://0.0.0.0:9/", "nowhere, IPv6": "https://[::]:9/", "full stop": "https://localhost.:9/", "upper case": "https://LOCALHOST:9/",
		"below localhost": "https://x.localhost/", "the API server": "https://kubernetes.default.svc/", "its short name": "https://kubernetes.default/",
		"a service": "https://vault.vault.svc:8200/v1", "metadata": "https://metadata/", "Google's": "https://METADATA.GOOGLE.INTERNAL./",
		"Alibaba's": "https://100.100.100.200/", "a zone": "https://[fe80::1%25eth0]/", "NAT64": "https://[64:ff9b::a9fe:a9fe]/",
		"mapped": "https://[::ffff:169.254.169.254]/", "short form": "https://127.1/", "a number": "https://2130706433/"} {
		w := newWorld(t, "aws")
		var asked []string
		w.config.IssuerClient = &http.Client{Transport: discoveryOnly{address, &asked, w.issuer.URL()}}
		w.config.Skip = []string{"exchange"}
		f := w.run().Of("discovery")
		if f.Result != doctor.Fail || !strings.Contains(f.Message, "jwks_uri") || len(asked) != 1 {
			t.Errorf("%s: asked %q: %+v", name, asked, f)
		}
	}
}

// discoveryOnly is an issuer whose keys are somewhere.
type discoveryOnly struct {
	keys   string
	asked  *[]string
	issuer string
}

func (d discoveryOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	*d.asked = append(*d.asked, r.URL.String())
	rec := httptest.NewRecorder()
	_, _ = fmt.Fprintf(rec, `{"issuer":%q,"jwks_uri":%q,"response_types_supported":["a"],"subject_types_supported":["a"],"id_token_signing_alg_values_supported":["a"]}`,
		d.issuer, d.keys)
	return rec.Result(), nil
}

// Nothing depends on the order of a map: a condition that changed from run to run would have its controller write for ever.
func TestFindingsAreDeterministic(t *testing.T) {
	w := newWorld(t, "aws")
	empty := strings.NewReplacer(`["a"]`, `[]`)
	w.config.IssuerClient = &http.Client{Transport: rewritten{discoveryOnly{"https://keys.example/", new([]string), w.issuer.URL()}, empty}}
	w.config.Skip = []string{"exchange"}
	w.trust = awsTrust(w.issuer.URL(), `{"StringEquals":{"issuer.example:sub":"a","issuer.example:aud":"b","issuer.example:x":"c"},"StringLike":{"issuer.example:sub":"d","issuer.example:y":"e"}}`)
	w.account.Annotations["eks.amazonaws.com/role-arm"], w.account.Annotations["eks.amazonaws.com/rol-arn"] = "x", "y"
	seen := map[string]bool{}
	for range 50 {
		w.config.Trust = nil
		report := w.run()
		text := ""
		for _, f := range report.Findings {
			text += fmt.Sprint(f.ID, f.Result, f.Message, f.Remedy, f.Causes)
			for _, own := range f.Fields {
				text += own.Name
			}
		}
		seen[normal(text)+report.Condition("Ready", 1).Message] = true
	}
	if len(seen) != 1 {
		t.Errorf("%d texts in 50 runs", len(seen))
	}
}

type rewritten struct {
	next    http.RoundTripper
	replace *strings.Replacer
}

func (r rewritten) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	rec := httptest.NewRecorder()
	var b strings.Builder
	if err := resp.Write(&b); err != nil {
		return nil, err
	}
	_, body, _ := strings.Cut(b.String(), "\r\n\r\n")
	_, _ = rec.WriteString(r.replace.Replace(body))
	return rec.Result(), nil
}
