package issuer_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
	"github.com/workloadid/workloadid/issuer"
)

// site is an issuer on a TLS web server of its own.
type site struct {
	*cloudtest.Issuer
	client *http.Client
	// change may answer in place of the issuer.
	change func(w http.ResponseWriter, r *http.Request) (done bool)
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{Issuer: testenv.IssuerAt(t, "https://oidc.example.com/cluster-1")}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.change == nil || !s.change(w, r) {
			s.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	s.client = server.Client()
	transport, ok := s.client.Transport.(*http.Transport)
	if !ok {
		t.Fatalf("%T", s.client.Transport)
	}
	transport = transport.Clone()
	transport.TLSClientConfig.ServerName = "example.com"
	transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
	}
	s.client.Transport = transport
	return s
}

func (s *site) token(t *testing.T) string {
	t.Helper()
	token,
		err := s.Sign(s.Claims(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}},
		[]string{"x"}, time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func (s *site) verify(t *testing.T, v issuer.Verification) []issuer.Check {
	t.Helper()
	if v.HTTPClient == nil {
		v.HTTPClient = s.client
	}
	checks, err := issuer.Verify(t.Context(), v)
	if err != nil {
		t.Fatal(err)
	}
	return checks
}

// answer replaces one file.
func answer(path string, status int, contentType, body string) func(s *site) {
	return func(s *site) {
		s.change = func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, path) {
				return false
			}
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
			return true
		}
	}
}

// edited changes one field of the discovery document.
func edited(field string, value any) func(s *site) {
	return func(s *site) {
		s.change = func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/openid-configuration") {
				return false
			}
			recorded, document := httptest.NewRecorder(), map[string]any{}
			s.ServeHTTP(recorded, r)
			_ = json.Unmarshal(recorded.Body.Bytes(), &document)
			document[field] = value
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(document)
			return true
		}
	}
}

// redirected leads to another host.
func redirected(path string) func(s *site) {
	return func(s *site) {
		s.change = func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, path) {
				http.Redirect(w, r, "https://www.example.com"+r.URL.Path, http.StatusMovedPermanently)
			}
			return strings.HasSuffix(r.URL.Path, path)
		}
	}
}

// leakedKeys is a key set with a private key.
func leakedKeys(t *testing.T) string {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaked, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: private, KeyID: "k"}}})
	if err != nil {
		t.Fatal(err)
	}
	return string(leaked)
}

func otherKeys(t *testing.T) string {
	t.Helper()
	return string(marshalKeys(es256(t, "other")))
}

func (s *site) keys(t *testing.T) []byte {
	t.Helper()
	recorded := httptest.NewRecorder()
	s.ServeHTTP(recorded, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/cluster-1/openid/v1/jwks", nil))
	return recorded.Body.Bytes()
}

func TestVerify(t *testing.T) {
	const discovery, keys, json, jwks = "/openid-configuration", "/jwks", "application/json", "application/jwk-set+json"
	for name, tt := range map[string]struct {
		spoil     func(s *site)
		failed    issuer.CheckName
		got, want string
	}{
		"healthy":     {func(*site) {}, "", "", ""},
		"no document": {answer(discovery, 404, json, ""), issuer.CheckDiscoveryPublic, "HTTP 404", "HTTP 200"},
		"private bucket": {answer(discovery, 403, "application/xml", "<Error/>"), issuer.CheckDiscoveryPublic,
			"HTTP 403", "HTTP 200"},
		"API server for known users": {answer(discovery, 401, json, `{"kind":"Status","apiVersion":"v1"}`),
			issuer.CheckDiscoveryAnonymous, "HTTP 401", "HTTP 200"},
		"web page": {answer(discovery, 200, "text/html", "<html>"), issuer.CheckDiscoveryDocument, "", ""},
		"redirected document": {redirected(discovery), issuer.CheckDiscoveryReachable,
			"https://oidc.example.com/cluster-1/.well-known/openid-configuration", ""},
		"redirected keys": {redirected(keys), issuer.CheckKeysReachable,
			"https://oidc.example.com/cluster-1/openid/v1/jwks", ""},
		"oversized document": {answer(discovery, 200, json, strings.Repeat(" ", issuer.MaxFile+1)),
			issuer.CheckDiscoveryReachable, "", ""},
		"oversized keys": {answer(keys, 200, jwks, strings.Repeat(" ", issuer.MaxFile+1)),
			issuer.CheckKeysReachable, "", ""},
		"wrong type of document": {answerTyped(discovery, "text/plain"), issuer.CheckContentType, `"text/plain"`, json},
		"wrong type of keys": {answerTyped(keys, "binary/octet-stream"), issuer.CheckContentType,
			`"binary/octet-stream"`, jwks},
		"keys as plain JSON": {answerTyped(keys, json+"; charset=utf-8"), "", "", ""},
		"foreign issuer": {edited("issuer", "https://evil.example"), issuer.CheckDiscoveryIssuer,
			"https://evil.example", "https://oidc.example.com/cluster-1"},
		"issuer in capitals": {answer(discovery, 200, json,
			`{"ISSUER":"https://oidc.example.com/cluster-1","JWKS_URI":"https://oidc.example.com/cluster-1/openid/v1/jwks"}`),
			issuer.CheckDiscoveryDocument, "", ""},
		"issuer twice, once with a long s": {edited("iſsuer", "https://evil.example"), "", "", ""},
		"keys in capitals": {answer(keys, 200, jwks, strings.Replace(otherKeys(t), `"keys"`, `"KEYS"`, 1)),
			issuer.CheckKeySet, "", ""},
		"issuer with a slash": {edited("issuer", "https://oidc.example.com/cluster-1/"),
			issuer.CheckDiscoveryIssuer, "https://oidc.example.com/cluster-1/", "https://oidc.example.com/cluster-1"},
		"other response types": {edited("response_types_supported", []string{"code"}),
			issuer.CheckDiscoveryDocument, "code", `["id_token"]`},
		"key for encryption": {keyWith(func(k *jose.JSONWebKey) { k.Use = "enc" }), issuer.CheckKeySet, "", ""},
		"key for another algorithm": {keyWith(func(k *jose.JSONWebKey) {
			k.Algorithm = "RS512"
		}), issuer.CheckKeySet, "", ""},
		"more keys than AWS reads": {answer(keys, 200, jwks, manyKeys(t)), issuer.CheckKeySet, "", ""},
		"missing list": {edited("subject_types_supported", nil), issuer.CheckDiscoveryDocument, "",
			`"subject_types_supported": ["public"]`},
		"keys of the API server": {edited("jwks_uri", "https://10.0.0.1:6443/openid/v1/jwks"),
			issuer.CheckDiscoveryDocument, "https://10.0.0.1:6443/openid/v1/jwks",
			"https://oidc.example.com/cluster-1/openid/v1/jwks"},
		"keys without TLS": {edited("jwks_uri", "http://oidc.example.com/cluster-1/openid/v1/jwks"),
			issuer.CheckDiscoveryDocument, "http://oidc.example.com/cluster-1/openid/v1/jwks",
			"https://oidc.example.com/cluster-1/openid/v1/jwks"},
		"keys with a password": {edited("jwks_uri", "https://a:b@oidc.example.com/jwks"),
			issuer.CheckDiscoveryDocument, "https://a:b@oidc.example.com/jwks", ""},
		"missing keys":                  {answer(keys, 404, jwks, ""), issuer.CheckKeysPublic, "HTTP 404", "HTTP 200"},
		"keys cut off":                  {answer(keys, 200, jwks, otherKeys(t)[:80]), issuer.CheckKeySet, "", ""},
		"key set without keys":          {answer(keys, 200, jwks, `{}`), issuer.CheckKeySet, "", ""},
		"published private key":         {answer(keys, 200, jwks, leakedKeys(t)), issuer.CheckKeySet, "", ""},
		"key set without signing key":   {answer(keys, 200, jwks, otherKeys(t)), issuer.CheckSigningKey, "", ""},
		"another key under the same ID": {sameID, issuer.CheckSignature, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			tt.spoil(s)
			checks := s.verify(t, issuer.Verification{Token: s.token(t)})
			failed := issuer.Failed(checks)
			if tt.failed == "" && len(failed) == 0 {
				return
			}
			if len(failed) != 1 || failed[0].Name != tt.failed || !strings.Contains(failed[0].Got, tt.got) ||
				!strings.Contains(failed[0].Want, tt.want) || failed[0].Problem == "" || failed[0].Remedy == "" {
				t.Errorf("failed: %+v\nwanted: %q, got %q, want %q", failed, tt.failed, tt.got, tt.want)
			}
		})
	}
}

// answerTyped serves the right file with a wrong type.
func answerTyped(path, contentType string) func(s *site) {
	return func(s *site) {
		s.change = func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, path) {
				return false
			}
			recorded := httptest.NewRecorder()
			s.ServeHTTP(recorded, r)
			answer(path, 200, contentType, recorded.Body.String())(s)
			return s.change(w, r)
		}
	}
}

// sameID publishes another key under the ID of the signing key.
func sameID(s *site) {
	keyWith(func(k *jose.JSONWebKey) {
		other, _ := rsa.GenerateKey(rand.Reader, 2048)
		k.Key = other.Public()
	})(s)
}

func manyKeys(t *testing.T) string {
	t.Helper()
	var set jose.JSONWebKeySet
	if err := json.Unmarshal([]byte(otherKeys(t)), &set); err != nil {
		t.Fatal(err)
	}
	set.Keys = slices.Repeat(set.Keys[:1], 101)
	content, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// keyWith changes the signing key as it is published.
func keyWith(change func(*jose.JSONWebKey)) func(s *site) {
	return func(s *site) {
		s.change = func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/jwks") {
				return false
			}
			recorded := httptest.NewRecorder()
			s.ServeHTTP(recorded, r)
			var set jose.JSONWebKeySet
			_ = json.Unmarshal(recorded.Body.Bytes(), &set)
			change(&set.Keys[0])
			w.Header().Set("Content-Type", "application/jwk-set+json")
			_ = json.NewEncoder(w).Encode(set)
			return true
		}
	}
}

func TestVerifyIssuerOfToken(t *testing.T) {
	for name, tt := range map[string]struct {
		issuer string
		failed issuer.CheckName
		says   string
	}{
		"another":       {"https://other.example.com", issuer.CheckIssuerOfToken, "another issuer"},
		"slash":         {"https://oidc.example.com/cluster-1/", issuer.CheckIssuerOfToken, "only by the /"},
		"case":          {"https://oidc.example.com/Cluster-1", issuer.CheckIssuerOfToken, "upper and lower case"},
		"without TLS":   {"http://oidc.example.com/cluster-1", issuer.CheckIssuerURL, "https://"},
		"query":         {"https://oidc.example.com/cluster-1?x=y", issuer.CheckIssuerURL, "query"},
		"cluster's own": {"https://kubernetes.default.svc.cluster.local", issuer.CheckIssuerURL, "no cloud can reach"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			checks := issuer.Failed(s.verify(t, issuer.Verification{Token: s.token(t), Issuer: tt.issuer}))
			for _, c := range checks {
				if c.Name == tt.failed && strings.Contains(c.Problem, tt.says) {
					return
				}
			}
			t.Errorf("failed: %+v", checks)
		})
	}
}

// Entra takes RS256 alone, other clouds take ES256 too.
func TestVerifyWarnsOfES256(t *testing.T) {
	s := newSite(t)
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key := jose.JSONWebKey{Key: private, KeyID: "ec"}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(map[string]any{"iss": s.URL(), "sub": "system:serviceaccount:a:b"}).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{key.Public()}})
	if err != nil {
		t.Fatal(err)
	}
	answer("/jwks", 200, "application/jwk-set+json", string(set))(s)
	checks := s.verify(t, issuer.Verification{Token: token})
	warned := false
	for _, c := range checks {
		warned = warned || c.Name == issuer.CheckAlgorithm && c.Failed() && c.Warning && c.Got == "ES256" && c.Want == "RS256"
	}
	if failed := issuer.Failed(checks); len(failed) > 0 || !warned {
		t.Errorf("%+v", checks)
	}
}

// Keys that a cloud was given are compared without a request.
func TestVerifyUploadedKeys(t *testing.T) {
	s := newSite(t)
	asked := 0
	s.change = func(http.ResponseWriter, *http.Request) bool { asked++; return false }
	checks := issuer.Failed(s.verify(t, issuer.Verification{Token: s.token(t), Keys: []byte(otherKeys(t))}))
	if len(checks) != 1 || checks[0].Name != issuer.CheckSigningKey ||
		!strings.Contains(checks[0].Problem, "uploaded keys lack the one") || asked != 0 {
		t.Errorf("%d requests, %+v", asked, checks)
	}
}

// A key with the ID of another one is another key.
func TestVerifyComparesKeysWithTheCluster(t *testing.T) {
	s := newSite(t)
	var published jose.JSONWebKeySet
	if err := json.Unmarshal(s.keys(t), &published); err != nil {
		t.Fatal(err)
	}
	other := renamed(es256(t, ""), published.Keys[0].KeyID)
	for name, tt := range map[string]struct {
		shown []jose.JSONWebKey
		want  []issuer.CheckName
	}{
		"same keys": {published.Keys, nil},
		"another by that ID": {[]jose.JSONWebKey{other},
			[]issuer.CheckName{issuer.CheckKeysOfCluster, issuer.CheckForeignKeys}},
		"one more": {append(slices.Clone(published.Keys), es256(t, "more")),
			[]issuer.CheckName{issuer.CheckKeysOfCluster}},
	} {
		t.Run(name, func(t *testing.T) {
			var failed []issuer.CheckName
			for _, c := range s.verify(t, issuer.Verification{Cluster: newAPIServer(tt.shown...).config(), Token: s.token(t)}) {
				if c.Failed() {
					failed = append(failed, c.Name)
				}
			}
			if !slices.Equal(failed, tt.want) {
				t.Errorf("failed %q, want %q", failed, tt.want)
			}
		})
	}
}

// A cloud that was given keys looks the issuer up by the name that it was given
// with them.
func TestVerifyIssuerOfUploadedKeys(t *testing.T) {
	s := newSite(t)
	for given, failed := range map[string]int{s.URL(): 0, "": 0, s.URL() + "/": 1,
		"https://oidc.example.com/cluster-2": 1} {
		t.Run(given, func(t *testing.T) {
			checks := issuer.Failed(s.verify(t, issuer.Verification{Token: s.token(t), Keys: s.keys(t), KeysIssuer: given}))
			if len(checks) != failed ||
				failed > 0 && (checks[0].Name != issuer.CheckKeysIssuer || checks[0].Got != given || checks[0].Want != s.URL()) {
				t.Errorf("%+v", checks)
			}
		})
	}
}

// AWS accepts no issuer with a port.
func TestVerifyWarnsOfAPort(t *testing.T) {
	for address, warns := range map[string]bool{"https://oidc.example.com:8443/c": true,
		"https://oidc.example.com/c": false} {
		t.Run(address, func(t *testing.T) {
			s := newSite(t)
			warned := false
			for _, c := range s.verify(t, issuer.Verification{Issuer: address}) {
				warned = warned || c.Warning && c.Failed() && strings.Contains(c.Problem, "AWS") && c.Got == address
			}
			if warned != warns {
				t.Errorf("warned: %t", warned)
			}
		})
	}
}

// A hostile document chooses texts that people read.
func TestVerifyBoundsForeignText(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for name, spoil := range map[string]func(s *site){
		"issuer":               edited("issuer", "https://evil.example/"+long),
		"issuer that turns":    edited("issuer", "https://evil.example/\u202egnp.\x1b[31m"),
		"address of the keys":  edited("jwks_uri", "http://evil.example/"+long),
		"keys that are absent": edited("jwks_uri", "https://oidc.example.com/"+long),
		"response types":       edited("response_types_supported", []string{long, long}),
		"content type":         answerTyped("/jwks", "text/"+long[:50_000]),
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			spoil(s)
			checks := s.verify(t, issuer.Verification{Token: s.token(t)})
			content, err := json.Marshal(checks)
			if err != nil || len(issuer.Failed(checks)) == 0 || len(content) > 8000 ||
				strings.ContainsAny(string(content), "\u202e") || strings.Contains(string(content), `\u001b`) {
				t.Errorf("%d bytes, %v: %.1000s", len(content), err, content)
			}
		})
	}
}

// A document may lead to the keys of another host, but not into the own
// network, whatever its name resolves to.
func TestVerifyReadsNoKeysOfTheOwnNetwork(t *testing.T) {
	asked := 0
	testenv.Alias(t, func(http.ResponseWriter, *http.Request) { asked++ })
	for name, wrap := range map[string]func(next http.RoundTripper) http.RoundTripper{
		"own transport":        func(next http.RoundTripper) http.RoundTripper { return next },
		"transport that wraps": func(next http.RoundTripper) http.RoundTripper { return roundTripper(next.RoundTrip) },
		"own dialer of TLS": func(next http.RoundTripper) http.RoundTripper {
			return &http.Transport{DialTLSContext: dialTLS(next)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			edited("jwks_uri", "https://alias.example.net/jwks")(s)
			failed := issuer.Failed(
				s.verify(t, issuer.Verification{Token: s.token(t), HTTPClient: &http.Client{Transport: wrap(s.client.Transport)}}))
			if len(failed) != 1 || failed[0].Name != issuer.CheckKeysReachable ||
				!strings.Contains(failed[0].Problem, "an address of this network") || asked != 0 {
				t.Errorf("%d requests, %+v", asked, failed)
			}
		})
	}
}

// dialTLS makes the TLS connections of a site's transport.
func dialTLS(next http.RoundTripper) func(ctx context.Context, network, address string) (net.Conn, error) {
	site := next.(*http.Transport) //nolint:forcetypeassert // newSite made it
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := site.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		secure := tls.Client(conn, site.TLSClientConfig)
		return secure, secure.HandshakeContext(ctx)
	}
}

type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestVerifyWaitsFiveSecondsForASlowServer(t *testing.T) {
	s := newSite(t)
	token := s.token(t)
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		failed := issuer.Failed(s.verify(t, issuer.Verification{Token: token, HTTPClient: &http.Client{Transport: silent{}}}))
		if len(failed) != 1 || failed[0].Name != issuer.CheckDiscoveryReachable ||
			!strings.Contains(failed[0].Problem, "timed out") || time.Since(start) != 5*time.Second {
			t.Errorf("after %s: %+v", time.Since(start), failed)
		}
	})
}

func TestVerifyNeedsAnIssuer(t *testing.T) {
	if checks, err := issuer.Verify(t.Context(), issuer.Verification{}); err == nil ||
		!strings.Contains(err.Error(), "name the issuer") {
		t.Errorf("%+v, %v", checks, err)
	}
}
