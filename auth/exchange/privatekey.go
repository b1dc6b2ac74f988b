package exchange

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"
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
		"aud": firstNonEmpty(r.provider.ClientAudience, r.provider.server()),
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
		header, err := json.Marshal(struct {
			Algorithm string `json:"alg"`
			KeyID     string `json:"kid,omitempty"`
			Type      string `json:"typ"`
		}{alg, id, "JWT"})
		if err != nil {
			return "", err
		}
		encode := base64.RawURLEncoding.EncodeToString
		input := encode(header) + "." + encode(claims)
		signed, err := signature(signer, alg, []byte(input))
		if err != nil {
			return "", err
		}
		return input + "." + encode(signed), nil
	}
}

const (
	algRSA     = "RS256"
	algECDSA   = "ES256"
	algEd25519 = "EdDSA"
)

func algorithm(public crypto.PublicKey) (string, error) {
	switch k := public.(type) {
	case *rsa.PublicKey:
		return algRSA, nil
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P256() {
			return algECDSA, nil
		}
	case ed25519.PublicKey:
		return algEd25519, nil
	}
	return "", fmt.Errorf("keys of type %T are not supported: use RSA, ECDSA on P-256 or Ed25519", public)
}

// signature is what RFC 7518, section 3, and RFC 8037 want for the algorithm.
func signature(signer crypto.Signer, alg string, input []byte) ([]byte, error) {
	if alg == algEd25519 {
		return signer.Sign(rand.Reader, input, crypto.Hash(0))
	}
	digest := sha256.Sum256(input)
	signed, err := signer.Sign(rand.Reader, digest[:], crypto.SHA256)
	if err != nil || alg == algRSA {
		return signed, err
	}
	return rawECDSA(signed)
}

// rawECDSA turns the ASN.1 that crypto.Signer returns into the two numbers of RFC 7518, section 3.4.
func rawECDSA(der []byte) ([]byte, error) {
	const size = 32
	var numbers struct{ R, S *big.Int }
	rest, err := asn1.Unmarshal(der, &numbers)
	if err != nil || len(rest) > 0 || numbers.R.Sign() < 0 || numbers.S.Sign() < 0 ||
		numbers.R.BitLen() > 8*size || numbers.S.BitLen() > 8*size {
		return nil, errors.New("the key returned a malformed signature")
	}
	raw := make([]byte, 2*size)
	numbers.R.FillBytes(raw[:size])
	numbers.S.FillBytes(raw[size:])
	return raw, nil
}
