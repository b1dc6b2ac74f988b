package proxy_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/podidentity/proxy"
)

// awaitReason waits until applications read why there are no credentials.
func awaitReason(t *testing.T, address, want string) {
	t.Helper()
	kubetest.Eventually(t, fmt.Sprintf("the application reads %q", want), func() bool {
		return strings.Contains(get(t, address).Message, want)
	})
}

// Each answer leaves the proxy without credentials and with a reason, and never
// with part of the answer.
func TestAnswersOfTheServerThatCannotBeUsed(t *testing.T) {
	const leak = "very/secret"
	valid := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for name, test := range map[string]struct {
		server http.HandlerFunc
		want   string
	}{
		"no JSON":    {answer(200, "<html>"+leak), "not the JSON"},
		"nothing":    {answer(200, ""), "not the JSON"},
		"an array":   {answer(200, "[]"), "not the JSON"},
		"two values": {answer(200, `{"Token":"`+leak+`"}{}`), "not the JSON"},
		"a number":   {answer(200, `{"Token":1}`), "not the JSON"},
		"no token": {answer(200, `{"AccessKeyId":"a","SecretAccessKey":"`+leak+`","Expiration":"`+valid+`"}`),
			"is missing"},
		"no key": {answer(200, `{"SecretAccessKey":"`+leak+`","Token":"t","Expiration":"`+valid+`"}`),
			"is missing"},
		"no secret": {answer(200, `{"AccessKeyId":"a","Token":"`+leak+`","Expiration":"`+valid+`"}`), "is missing"},
		"no Expiration": {answer(200, `{"AccessKeyId":"a","SecretAccessKey":"`+leak+`","Token":"t"}`),
			"Expiration is missing"},
		"Expiration": {answer(200,
			`{"AccessKeyId":"a","SecretAccessKey":"`+leak+`","Token":"t","Expiration":"tomorrow"}`), "RFC 3339"},
		"expired": {answer(200,
			`{"AccessKeyId":"a","SecretAccessKey":"`+leak+`","Token":"t","Expiration":"2001-01-01T00:00:00Z"}`),
			"check the clock of the node"},
		"other success":      {answer(201, `{}`), "HTTP 201"},
		"server error":       {answer(500, leak), "HTTP 500"},
		"error without JSON": {answer(403, "<html>"+leak), "HTTP 403"},
		"endless body":       {endless, "larger than 65536 bytes"},
		"redirect":           {redirect, "refused to follow a redirect"},
		"cut connection":     {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
		"short body":         {short, "unexpected EOF"},
		"endless headers":    {manyHeaders, "exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			address := start(t, startServer(t, test.server))[0]
			awaitReason(t, address, test.want)
			if a := get(t, address); a.status != http.StatusServiceUnavailable || a.Code == "" ||
				strings.Contains(a.body, leak) {
				t.Errorf("got %d %s, want a 503 without part of the answer", a.status, a.body)
			}
		})
	}
}

func endless(w http.ResponseWriter, _ *http.Request) {
	for block := make([]byte, 32<<10); ; {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}

func redirect(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, "https://attacker.example/v1/credentials", http.StatusTemporaryRedirect)
}

func short(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "1000")
	_, _ = io.WriteString(w, "{")
}

func manyHeaders(w http.ResponseWriter, _ *http.Request) {
	for i := range 100 {
		w.Header().Set(fmt.Sprintf("X-%d", i), strings.Repeat("x", 10<<10))
	}
}

func TestServerThatIsNotOurs(t *testing.T) {
	server := &issuer{t: t}
	other := httptest.NewUnstartedServer(server)
	other.TLS = &tls.Config{MaxVersion: tls.VersionTLS11,
		MinVersion: tls.VersionTLS10} //nolint:gosec // what the proxy refuses
	other.StartTLS()
	t.Cleanup(other.Close)
	old := startServer(t, server)
	old.Server = other.URL
	old.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: other.Certificate().Raw})

	wrongName := startServer(t, server)
	wrongName.Server = strings.Replace(wrongName.Server, "127.0.0.1", "localhost", 1)

	wrongCA := startServer(t, server)
	wrongCA.CA = []byte(strangerCA)

	for name, test := range map[string]struct {
		options proxy.Options
		want    string
	}{
		"certificate of another CA":   {wrongCA, "unknown authority"},
		"certificate of another host": {wrongName, "certificate is valid for"},
		"TLS 1.1":                     {old, "protocol version"},
	} {
		t.Run(name, func(t *testing.T) {
			address := start(t, test.options)[0]
			awaitReason(t, address, test.want)
		})
	}
	if n := server.count(); n != 0 {
		t.Errorf("%d calls brought the pod's token to another server", n)
	}
}

func TestTokenThatIsNoHeaderValue(t *testing.T) {
	o := startServer(t, &issuer{t: t})
	o.TokenFile = tokenFile(t, "two\nlines")
	address := start(t, o)[0]
	awaitReason(t, address, "holds no token")
	if a := get(t, address); strings.Contains(a.Message, "lines") {
		t.Errorf("the message %q holds the file", a.Message)
	}
}

func TestSlowServerIsGivenUp(t *testing.T) {
	for name, slow := range map[string]func(r *http.Request) (*http.Response, error){
		"no headers": func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() },
		"a byte a second": func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(drip{r.Context()}), Request: r}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := running(t, nil, func(o *proxy.Options) { o.Client = &http.Client{Transport: roundTripper(slow)} })
				pass(25 * time.Second)
				if a := ask(t, p); !strings.Contains(a.Message, "timed out") {
					t.Errorf("got %d %s, want a timeout", a.status, a.body)
				}
			})
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// drip is a body without an end.
type drip struct{ ctx context.Context }

func (d drip) Read(p []byte) (int, error) {
	select {
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	case <-time.After(time.Second):
		p[0] = ' '
		return 1, nil
	}
}

func TestOptionsThatCannotWork(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*proxy.Options)
		want   string
	}{
		"no server":             {func(o *proxy.Options) { o.Server = "" }, `server ""`},
		"plain HTTP":            {func(o *proxy.Options) { o.Server = "http://iam.example" }, "use https://host:port"},
		"no host":               {func(o *proxy.Options) { o.Server = "https://:8443" }, "use https://host:port"},
		"a path":                {func(o *proxy.Options) { o.Server = "https://iam.example/" }, "without a path"},
		"user information":      {func(o *proxy.Options) { o.Server = "https://a:b@iam.example" }, "use https://host:port"},
		"no token file":         {func(o *proxy.Options) { o.TokenFile = "" }, "token file"},
		"no secret":             {func(o *proxy.Options) { o.Secret = "" }, "secret is empty"},
		"secret with a newline": {func(o *proxy.Options) { o.Secret = "abc\n" }, "no header value"},
		"neither CA nor client": {func(o *proxy.Options) { o.Client = nil }, "either the CA"},
		"both CA and client":    {func(o *proxy.Options) { o.CA = []byte(strangerCA) }, "either the CA"},
		"CA without certificate": {func(o *proxy.Options) {
			o.Client, o.CA = nil, []byte("/etc/ca.pem")
		}, "no PEM certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			o := proxy.Options{Server: "https://iam.example:8443", TokenFile: "token", Secret: secret,
				Client: http.DefaultClient}
			test.change(&o)
			if _, err := proxy.New(o); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
		})
	}
}

// strangerCA signed no certificate of these tests.
const strangerCA = `-----BEGIN CERTIFICATE-----
MIIBgDCCASegAwIBAgIUBuHNUnp8mN5vWVmvAp1hwJTwsxkwCgYIKoZIzj0EAwIw
FTETMBEGA1UEAwwKYW5vdGhlciBDQTAgFw0yNjExMjIwNjA4MDdaGA8yMTI2MTAy
OTA2MDgwN1owFTETMBEGA1UEAwwKYW5vdGhlciBDQTBZMBMGByqGSM49AgEGCCqG
SM49AwEHA0IABBMU+Z4EW5VOQFdJ2JzWkUt1YI+U3n5gspnrv2tFuK2vAF+/KqVj
TuvXSu2IJjjyYCIbTZgcCBnP8dswCqM8lPajUzBRMB0GA1UdDgQWBBQ7p/f3phNF
GJZkWaRa1DKiLJmlxTAfBgNVHSMEGDAWgBQ7p/f3phNFGJZkWaRa1DKiLJmlxTAP
BgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0cAMEQCIGved+SnZF2azuU0yPYX
0Mthwg3Q2rBGxuLpeLBS/v8eAiB/pSK5KhmPBUPA2hduvnv4Iitpblod9V3cNmYI
cTJcag==
-----END CERTIFICATE-----
`
