package relay_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/workloadid/workloadid/registration/relay"
)

// between returns a CA that c has signed, with a DNS name.
func (c *ca) between(t testing.TB, key *ecdsa.PrivateKey, name string) *ca {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(3), Subject: pkix.Name{CommonName: "between"},
		DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	return &ca{key: key, cert: c.create(t, template, c.cert, key)}
}

func TestIntermediateCAs(t *testing.T) {
	w := newEnvironment(t, nil)
	first := w.ca.between(t, newKey(t), "first")
	second := first.between(t, newKey(t), "second")
	for name, c := range map[string]struct {
		signer  *ca
		sent    []*ca
		code    int
		message string
	}{
		"none sent":               {first, nil, 401, "unknown authority"},
		"one":                     {first, []*ca{first}, 200, ""},
		"two":                     {second, []*ca{second, first}, 400, "2 intermediate CAs"},
		"two, of which one helps": {first, []*ca{first, second}, 400, "2 intermediate CAs"},
	} {
		t.Run(name, func(t *testing.T) {
			cert := c.signer.issue(t, nil)
			for _, s := range c.sent {
				cert.Certificate = append(cert.Certificate, s.cert.Raw)
			}
			if a := w.get(t, cert, nil); a.code != c.code {
				t.Errorf("answer %+v", a)
			} else if c.code != http.StatusOK {
				a.expect(t, c.code, c.message)
			}
			w.got(t)
		})
	}
}

// A client without any credential makes a certificate and its intermediates
// itself. Here each intermediate may have signed each.
func BenchmarkForeignChain(b *testing.B) {
	w := newEnvironment(b, nil)
	handler, err := relay.New(w.options())
	if err != nil {
		b.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	foreign := newCA(b).between(b, key, "0")
	chain := []*x509.Certificate{foreign.leaf(b)}
	for i := range 100 {
		chain = append(chain, foreign.between(b, key, fmt.Sprint(i)).cert)
	}
	for _, intermediates := range []int{0, 1, 2, 4, 100} {
		b.Run(fmt.Sprintf("intermediates=%d", intermediates), func(b *testing.B) {
			for b.Loop() {
				recorder, request := httptest.NewRecorder(),
					httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/api", nil)
				request.TLS = &tls.ConnectionState{PeerCertificates: chain[:1+intermediates]}
				if handler.ServeHTTP(recorder, request); recorder.Code == http.StatusOK {
					b.Fatal(recorder.Code, recorder.Body)
				}
			}
		})
	}
}

func (c *ca) leaf(t testing.TB) *x509.Certificate {
	t.Helper()
	leaf, err := x509.ParseCertificate(c.issue(t, nil).Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}
