package cloudtest

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/uuid"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Issuer is the token issuer of a Kubernetes API server. As an [http.Handler]
// it serves the OIDC discovery document and the keys. [Issuer.Client],
// [Issuer.Wrap] and [Issuer.PrependTo] give access to an API server that mints
// its tokens, and [Issuer.Verify] checks them. It is safe for concurrent use.
type Issuer struct {
	url string
	now func() time.Time

	mu        sync.Mutex
	current   *signingKey
	published []*signingKey
	requests  int
	refuse    func(corev1.ServiceAccount, authenticationv1.TokenRequestSpec) error
}

type signingKey struct {
	id      string
	private *rsa.PrivateKey
}

// IssuerConfig configures an [Issuer]. The zero value is ready for use.
type IssuerConfig struct {
	// URL is the issuer, an https URL without a final slash. Empty:
	// https://issuer.example.
	URL string
	// Key signs until Rotate. Nil: a new RSA key. Making one takes longer than
	// most tests.
	Key *rsa.PrivateKey
}

// NewIssuer returns an issuer with one RSA key.
func NewIssuer(config IssuerConfig) (*Issuer, error) {
	if config.URL == "" {
		config.URL = "https://issuer.example"
	}
	if u, err := url.Parse(config.URL); err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("cloudtest: issuer %q is not an https URL", config.URL)
	}
	i := &Issuer{url: config.URL, now: time.Now}
	if config.Key != nil {
		return i, i.rotate(config.Key, false)
	}
	return i, i.Rotate(false)
}

// URL returns the issuer, as in the iss claim.
func (i *Issuer) URL() string { return i.url }

// Rotate makes a new signing key. The old keys stay published if keepOld is
// set. Otherwise nothing can verify their tokens any more.
func (i *Issuer) Rotate(keepOld bool) error {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	return i.rotate(private, keepOld)
}

func (i *Issuer) rotate(private *rsa.PrivateKey, keepOld bool) error {
	der, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
	if err != nil {
		return err
	}
	// The API server names its keys in this way.
	sum := sha256.Sum256(der)
	key := &signingKey{id: base64.RawURLEncoding.EncodeToString(sum[:]), private: private}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.current = key
	if !keepOld {
		i.published = nil
	}
	i.published = append(i.published, key)
	return nil
}

// ServeHTTP serves /.well-known/openid-configuration and /openid/v1/jwks, below
// the path of the issuer's URL.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u, _ := url.Parse(i.url)
	switch path := strings.TrimPrefix(r.URL.Path, u.Path); {
	case r.Method != http.MethodGet:
		http.Error(w, "405 method not allowed", http.StatusMethodNotAllowed)
	case path == "/.well-known/openid-configuration":
		i.serve(w, "application/json", discovery{
			Issuer:        i.url,
			JWKSURI:       i.url + "/openid/v1/jwks",
			ResponseTypes: []string{"id_token"},
			SubjectTypes:  []string{"public"},
			Algorithms:    []string{string(jose.RS256)},
		})
	case path == "/openid/v1/jwks":
		i.serve(w, "application/jwk-set+json", i.keys())
	default:
		http.NotFound(w, r)
	}
}

type discovery struct {
	Issuer        string   `json:"issuer"`
	JWKSURI       string   `json:"jwks_uri"`
	ResponseTypes []string `json:"response_types_supported"`
	SubjectTypes  []string `json:"subject_types_supported"`
	Algorithms    []string `json:"id_token_signing_alg_values_supported"`
}

func (i *Issuer) serve(w http.ResponseWriter, contentType string, document any) {
	body, err := json.Marshal(document)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "public, max-age=3600")
	_, _ = w.Write(body) // a client that has gone needs no answer
}

func (i *Issuer) keys() jose.JSONWebKeySet {
	i.mu.Lock()
	defer i.mu.Unlock()
	var set jose.JSONWebKeySet
	for _, k := range i.published {
		set.Keys = append(set.Keys,
			jose.JSONWebKey{Key: &k.private.PublicKey, KeyID: k.id, Algorithm: string(jose.RS256), Use: "sig"})
	}
	return set
}

// HTTPClient returns a client that gets the issuer's documents without a
// network, for [AWS.AddOIDCProvider]. It refuses every other host.
func (i *Issuer) HTTPClient() *http.Client {
	u, _ := url.Parse(i.url)
	return &http.Client{Transport: handlerTransport{host: u.Host, handler: i}}
}

// Claims returns the claims of a token that the API server issues for a
// ServiceAccount. Change them and call Sign to forge a token.
func (i *Issuer) Claims(sa *corev1.ServiceAccount, audiences []string, lifetime time.Duration) map[string]any {
	now := i.now()
	return map[string]any{
		"iss": i.url,
		"sub": "system:serviceaccount:" + sa.Namespace + ":" + sa.Name,
		"aud": audiences,
		"iat": now.Unix(),
		"nbf": now.Unix(),
		"exp": now.Add(lifetime).Unix(),
		"jti": uuid.NewString(),
		"kubernetes.io": map[string]any{
			"namespace":      sa.Namespace,
			"serviceaccount": map[string]any{"name": sa.Name, "uid": string(sa.UID)},
		},
	}
}

// Verify checks a token as a service that trusts the issuer does, and returns
// its ServiceAccount. It checks the signature against the published keys, the
// issuer, the audience, the validity without a tolerance for clock skew, and
// the form of the subject. It refuses a token without an expiry.
func (i *Issuer) Verify(token, audience string) (client.ObjectKey, error) {
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.RS256})
	if err != nil {
		return client.ObjectKey{}, fmt.Errorf("cloudtest: verify token: %w", err)
	}
	var claims tokenClaims
	if err := parsed.Claims(i.keys(), &claims); err != nil {
		return client.ObjectKey{}, fmt.Errorf("cloudtest: verify token: %w", err)
	}
	if claims.Expiry == nil {
		return client.ObjectKey{}, errors.New("cloudtest: verify token: it has no expiry")
	}
	expected := jwt.Expected{Issuer: i.url, AnyAudience: jwt.Audience{audience}, Time: i.now()}
	if err := claims.ValidateWithLeeway(expected, 0); err != nil {
		return client.ObjectKey{}, fmt.Errorf("cloudtest: verify token: %w", err)
	}
	subject, ok := strings.CutPrefix(claims.Subject, "system:serviceaccount:")
	namespace, name, found := strings.Cut(subject, ":")
	if !ok || !found {
		return client.ObjectKey{}, fmt.Errorf("cloudtest: verify token: the subject %.100q is not a ServiceAccount",
			claims.Subject)
	}
	return client.ObjectKey{Namespace: namespace, Name: name}, nil
}

// Sign returns a JWT with the given claims, signed with the current key.
func (i *Issuer) Sign(claims map[string]any) (string, error) {
	i.mu.Lock()
	key := i.current
	i.mu.Unlock()
	return sign(claims, map[string]any{"alg": "RS256", "kid": key.id}, key.private)
}

// SignWithHeader returns a JWT with the given header, for example without kid
// or with alg none. The signature is always RS256 with the current key.
func (i *Issuer) SignWithHeader(claims, header map[string]any) (string, error) {
	i.mu.Lock()
	key := i.current
	i.mu.Unlock()
	return sign(claims, header, key.private)
}

func sign(claims, header map[string]any, key *rsa.PrivateKey) (string, error) {
	h, err := json.Marshal(header)
	if err != nil {
		return "", err
	}
	c, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	encode := base64.RawURLEncoding.EncodeToString
	input := encode(h) + "." + encode(c)
	digest := sha256.Sum256([]byte(input))
	signature, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, digest[:])
	if err != nil {
		return "", err
	}
	return input + "." + encode(signature), nil
}
