package exchange

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/cryptosigner"
)

// A SignFunc returns a JWT in compact form with the given claims, a JSON object, signed with the client's key. It is called
// for every request, concurrently, and has to honour the context. SignWithKey makes one.
type SignFunc func(ctx context.Context, claims []byte) (jwt string, err error)

// assertionLife is how long an assertion is valid. It is used at once.
const assertionLife = 2 * time.Minute

type keyClient struct {
	client
	sign SignFunc
}

// PrivateKeyJWT authenticates with a JWT that the client's key has signed (private_key_jwt, RFC 7523, section 2.2). Each
// request has one of its own, which is valid for two minutes.
func PrivateKeyJWT(clientID string, sign SignFunc) ClientAuthentication {
	return keyClient{client{clientID}, sign}
}

func (keyClient) method() string { return "private_key_jwt" }

func (c keyClient) check() error {
	if c.sign == nil {
		return self.Misconfigured("pass a function that signs, such as SignWithKey returns", "the client %.100q has no key", c.clientID)
	}
	return c.client.check()
}

func (c keyClient) authenticate(ctx context.Context, r *tokenRequest) error {
	now := time.Now()
	// The claims of RFC 7523, section 3.
	claims, err := json.Marshal(map[string]any{
		"iss": c.clientID,
		"sub": c.clientID,
		"aud": cmp.Or(r.provider.ClientAudience, r.provider.server()),
		"jti": rand.Text(),
		"iat": now.Unix(),
		"exp": now.Add(assertionLife).Unix(),
	})
	if err != nil {
		return err
	}
	jwt, err := c.sign(ctx, claims)
	if err != nil {
		return sourceError(err, "the client assertion cannot be signed", jwt)
	}
	if strings.Count(jwt, ".") != 2 {
		return self.Misconfigured("have it return the JWT in compact form", "the signer of client %.100q returned no JWT", c.clientID)
	}
	r.setAssertion(jwt, c.clientID)
	return nil
}

// SignWithKey returns a SignFunc for an RSA key (RS256), an ECDSA key on P-256 (ES256) or an Ed25519 key (EdDSA), which may
// lie in a key management service. key is called for every signature, so that a key that was replaced is used from then on;
// keyID tells the server which one it is, and is left out if empty.
func SignWithKey(key func(ctx context.Context) (key crypto.Signer, keyID string, err error)) SignFunc {
	return func(ctx context.Context, claims []byte) (string, error) {
		signer, id, err := key(ctx)
		if err != nil {
			return "", err
		}
		if signer == nil {
			return "", errors.New("there is no key")
		}
		alg, err := algorithm(signer.Public())
		if err != nil {
			return "", err
		}
		options := (&jose.SignerOptions{}).WithType("JWT")
		if id != "" {
			options = options.WithHeader("kid", id)
		}
		j, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: cryptosigner.Opaque(signer)}, options)
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

func algorithm(public crypto.PublicKey) (jose.SignatureAlgorithm, error) {
	switch k := public.(type) {
	case *rsa.PublicKey:
		return jose.RS256, nil
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P256() {
			return jose.ES256, nil
		}
	case ed25519.PublicKey:
		return jose.EdDSA, nil
	}
	return "", fmt.Errorf("keys of type %T are not supported: use RSA, ECDSA on P-256 or Ed25519", public)
}
