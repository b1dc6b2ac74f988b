package exchange

import (
	"cmp"
	"context"
	"crypto"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/cryptosigner"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/oauth"
)

// ClientAuthentication authenticates the controller to the server as a client (RFC 6749, section 2.3). PublicClient,
// ClientSecretBasic, ClientSecretPost, PrivateKeyJWT and ServiceAccountAssertion make one. It is safe for concurrent use.
type ClientAuthentication interface{ settings() *client }

type client struct {
	method, id   string
	problem      error // of the arguments
	authenticate func(ctx context.Context, r *tokenRequest) error
}

func (c *client) settings() *client { return c }

// checkID accepts a client-id of RFC 6749, appendix A.1.
func checkID(id string) error {
	if id == "" || strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r > '~' }) {
		return self.Misconfigured("use the ID under which the controller is registered", "%.100q is not a client ID", id)
	}
	return nil
}

// PublicClient names the client without a proof (token_endpoint_auth_method none).
func PublicClient(clientID string) ClientAuthentication {
	return &client{method: "none", id: clientID, problem: checkID(clientID), authenticate: func(_ context.Context, r *tokenRequest) error {
		r.form.Set("client_id", clientID)
		return nil
	}}
}

// A SecretFunc returns the client's secret. Every exchange calls it, so that a replaced secret is used from then on: read it
// from a file or an informer. It is called concurrently and has to honour the context.
type SecretFunc func(ctx context.Context) (string, error)

// ClientSecretBasic sends the client's secret in the Authorization header (client_secret_basic).
func ClientSecretBasic(clientID string, secret SecretFunc) ClientAuthentication {
	return secretClient("client_secret_basic", clientID, secret, func(r *tokenRequest, value string) {
		// Both are form-encoded first (RFC 6749, section 2.3.1): a colon in the ID would end it.
		basic := base64.StdEncoding.EncodeToString([]byte(url.QueryEscape(clientID) + ":" + url.QueryEscape(value)))
		r.addSecrets(basic)
		r.authorization = "Basic " + basic
	})
}

// ClientSecretPost sends the client's secret in the body (client_secret_post), for servers that support nothing better.
func ClientSecretPost(clientID string, secret SecretFunc) ClientAuthentication {
	return secretClient("client_secret_post", clientID, secret, func(r *tokenRequest, value string) {
		r.form.Set("client_id", clientID)
		r.form.Set("client_secret", value)
	})
}

func secretClient(method, clientID string, secret SecretFunc, send func(*tokenRequest, string)) ClientAuthentication {
	c := &client{method: method, id: clientID, problem: checkID(clientID)}
	if secret == nil {
		c.problem = self.Misconfigured("pass a function that returns the secret", "the client %.100q has no secret", clientID)
	}
	c.authenticate = func(ctx context.Context, r *tokenRequest) error {
		value, err := secret(ctx)
		if err != nil {
			return unavailable(err, "the client's secret is not available: ", value)
		}
		if value == "" {
			return self.Misconfigured("have the function return the secret or an error", "the secret of client %.100q is empty", clientID)
		}
		r.addSecrets(value, url.QueryEscape(value))
		send(r, value)
		return nil
	}
	return c
}

// ServiceAccountAssertion authenticates with a token of the controller's own ServiceAccount (RFC 7521, section 4.2), for
// servers that trust the cluster's issuer for clients: no secret is stored anywhere. Every exchange asks the source;
// auth.NewFileTokenSource reads a projected volume. The client ID is optional if the server finds the client by the token's
// subject.
func ServiceAccountAssertion(clientID string, source auth.SubjectTokenSource) ClientAuthentication {
	c := &client{method: "client_assertion", id: clientID}
	if clientID != "" {
		c.problem = checkID(clientID)
	}
	if source == nil {
		c.problem = self.Misconfigured("pass a source such as auth.NewFileTokenSource", "the client assertion has no source")
	}
	c.authenticate = func(ctx context.Context, r *tokenRequest) error {
		audience := cmp.Or(r.provider.ClientAudience, r.provider.learn().audiences[0])
		jwt, err := ownToken(ctx, source, "the client assertion", []string{audience}, r.opts)
		if err != nil {
			return err
		}
		r.setAssertion(jwt, clientID)
		return nil
	}
	return c
}

func (r *tokenRequest) setAssertion(jwt, clientID string) {
	r.addSecrets(jwt)
	r.form.Set("client_assertion_type", oauth.AssertionType)
	r.form.Set("client_assertion", jwt)
	if clientID != "" {
		r.form.Set("client_id", clientID)
	}
}

// A SignFunc returns a JWT in compact form with the given claims, a JSON object, signed with the client's key. Every request
// calls it, concurrently, and it has to honour the context. SignWithKey makes one.
type SignFunc func(ctx context.Context, claims []byte) (jwt string, err error)

// assertionLifetime is short, because an assertion is used at once.
const assertionLifetime = 2 * time.Minute

// PrivateKeyJWT authenticates with a JWT that the client's key has signed (private_key_jwt, RFC 7523, section 2.2). Each
// request has one of its own, which is valid for two minutes.
func PrivateKeyJWT(clientID string, sign SignFunc) ClientAuthentication {
	c := &client{method: "private_key_jwt", id: clientID, problem: checkID(clientID)}
	if sign == nil {
		c.problem = self.Misconfigured("pass a function that signs, such as SignWithKey returns", "the client %.100q has no key", clientID)
	}
	c.authenticate = func(ctx context.Context, r *tokenRequest) error {
		now := time.Now()
		claims, err := json.Marshal(map[string]any{ // of RFC 7523, section 3
			"iss": clientID,
			"sub": clientID,
			"aud": cmp.Or(r.provider.ClientAudience, r.provider.server()),
			"jti": rand.Text(),
			"iat": now.Unix(),
			"exp": now.Add(assertionLifetime).Unix(),
		})
		if err != nil {
			return err
		}
		jwt, err := sign(ctx, claims)
		if err != nil {
			return unavailable(err, "the client assertion cannot be signed: ", jwt)
		}
		if strings.Count(jwt, ".") != 2 {
			return self.Misconfigured("have it return the JWT in compact form", "the signer of client %.100q returned no JWT", clientID)
		}
		r.setAssertion(jwt, clientID)
		return nil
	}
	return c
}

// SignWithKey returns a SignFunc for an RSA key (RS256), an ECDSA key on P-256 (ES256) or an Ed25519 key (EdDSA), which may
// lie in a key management service. Every signature calls key, so that a replaced key is used from then on. keyID names the key
// to the server, and is left out if empty.
func SignWithKey(key func(ctx context.Context) (key crypto.Signer, keyID string, err error)) SignFunc {
	return func(ctx context.Context, claims []byte) (string, error) {
		signer, id, err := key(ctx)
		if err != nil {
			return "", err
		}
		if signer == nil {
			return "", errors.New("there is no key")
		}
		opaque := cryptosigner.Opaque(signer)
		algorithms := opaque.Algs() // the usual one of the key's type first
		if len(algorithms) == 0 || !slices.Contains([]jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.EdDSA}, algorithms[0]) {
			return "", fmt.Errorf("keys of type %T are not supported: use RSA, ECDSA on P-256 or Ed25519", signer.Public())
		}
		options := (&jose.SignerOptions{}).WithType("JWT")
		if id != "" {
			options = options.WithHeader("kid", id)
		}
		j, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithms[0], Key: opaque}, options)
		if err != nil {
			return "", err
		}
		signed, err := j.Sign(claims)
		if err != nil {
			return "", err
		}
		return signed.CompactSerialize()
	}
}
