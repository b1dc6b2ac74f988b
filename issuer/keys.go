package issuer

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"

	"github.com/workloadid/workloadid/internal/exactjson"
)

const (
	// maxKeys is the largest number of RSA or EC keys that AWS reads.
	maxKeys = 100
	// maxKeyID is the largest ID in bytes that Kubernetes allows an external
	// signer.
	maxKeyID = 1024
)

// errNoKeySet is the error of content without the form of a key set. Other
// errors concern a key in the set.
var errNoKeySet = errors.New("no JSON Web Key Set")

// publicKey is a key in its published form: use "sig", an ID, and the algorithm
// of its tokens. It has no certificates.
type publicKey struct{ jose.JSONWebKey }

// UnmarshalJSON accepts public keys whose tokens an API server issues, and
// nothing else.
func (k *publicKey) UnmarshalJSON(content []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(content, &members); err != nil {
		return errNoKeySet
	}
	var parsed jose.JSONWebKey
	err := parsed.UnmarshalJSON(content)
	id := parsed.KeyID
	if id == "" {
		_ = json.Unmarshal(members["kid"], &id) // for the message
	}
	for _, private := range []string{"d", "p", "q", "dp", "dq", "qi", "oth", "k"} {
		if _, ok := members[private]; ok {
			return fmt.Errorf(
				"key %.99q holds %q of a private or symmetric key: replace that key, because it is no secret any more", id, private)
		}
	}
	if err != nil {
		return fmt.Errorf("key %.99q: %w", id, err)
	}
	algorithm, err := algorithmOf(parsed.Key)
	switch {
	case err != nil:
	case id == "":
		err = errors.New("it has no ID")
	// IDs are printed, and copied into a cloud's console.
	case strings.ContainsFunc(id, func(r rune) bool { return r < '!' || r > '~' }):
		err = errors.New("its ID holds characters other than the visible ones of ASCII")
	case len(id) > maxKeyID:
		err = fmt.Errorf("its ID has %d bytes, the most are %d", len(id), maxKeyID)
	case parsed.Use != "" && parsed.Use != "sig":
		err = fmt.Errorf("its use is %.99q, not %q", parsed.Use, "sig")
	case parsed.Algorithm != "" && parsed.Algorithm != string(algorithm):
		err = fmt.Errorf("its algorithm is %.99q, but a key of that type has %q", parsed.Algorithm, algorithm)
	}
	if err != nil {
		return fmt.Errorf("key %.99q: %w", id, err)
	}
	k.JSONWebKey = jose.JSONWebKey{Key: parsed.Key, KeyID: id, Use: "sig", Algorithm: string(algorithm)}
	return nil
}

// algorithmOf returns the algorithm of the tokens that an API server signs with
// a key.
func algorithmOf(key any) (jose.SignatureAlgorithm, error) {
	switch key := key.(type) {
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < 2048 || bits > 8192 {
			return "", fmt.Errorf("an RSA key has 2048 to 8192 bits, not %d", bits)
		}
		return jose.RS256, nil
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P256():
			return jose.ES256, nil
		case elliptic.P384():
			return jose.ES384, nil
		case elliptic.P521():
			return jose.ES512, nil
		}
	}
	return "", errors.New("it is neither an RSA key nor an EC key of P-256, P-384 or P-521")
}

func (k publicKey) sameMaterial(other publicKey) bool {
	equal, ok := k.Key.(interface{ Equal(crypto.PublicKey) bool })
	return ok && equal.Equal(other.Key)
}

// keySet holds keys by ascending, unique ID.
type keySet []publicKey

func parseKeySet(content []byte) (keySet, error) {
	var set struct {
		Keys keySet `json:"keys"`
	}
	if !json.Valid(content) {
		return nil, fmt.Errorf("%w: the content is no JSON", errNoKeySet)
	}
	var mismatch *json.UnmarshalTypeError
	switch err := exactjson.Unmarshal(content, &set); {
	case errors.As(err, &mismatch), err == nil && set.Keys == nil:
		return nil, errNoKeySet
	case err != nil:
		return nil, err
	}
	slices.SortFunc(set.Keys, func(a, b publicKey) int { return cmp.Compare(a.KeyID, b.KeyID) })
	if len(set.Keys) > maxKeys {
		return nil, tooMany(len(set.Keys))
	}
	for i, key := range set.Keys[min(1, len(set.Keys)):] {
		if key.KeyID == set.Keys[i].KeyID {
			return nil, fmt.Errorf("two keys have the ID %.99q", key.KeyID)
		}
	}
	return set.Keys, nil
}

func tooMany(n int) error {
	return fmt.Errorf("there are %d keys, but AWS reads %d at most", n, maxKeys)
}

func (s keySet) index(id string) int {
	return slices.IndexFunc(s, func(k publicKey) bool { return k.KeyID == id })
}

// lacking returns the IDs of the keys that other does not hold, or holds under
// other IDs.
func (s keySet) lacking(other keySet) (ids []string) {
	for _, key := range s {
		if i := other.index(key.KeyID); i < 0 || !key.sameMaterial(other[i]) {
			ids = append(ids, key.KeyID)
		}
	}
	return ids
}

// algorithms returns the algorithms of the keys, in order.
func (s keySet) algorithms() []string {
	algorithms := []string{}
	for _, key := range s {
		algorithms = append(algorithms, key.Algorithm)
	}
	slices.Sort(algorithms)
	return slices.Compact(algorithms)
}

// warnings returns a sentence for each key whose tokens a cloud refuses. AWS
// accepts each algorithm.
func (s keySet) warnings() (warnings []string) {
	for _, cloud := range []struct {
		name     string
		accepted []string
	}{{"Microsoft Entra ID", []string{"RS256"}}, {"Google Cloud", []string{"RS256", "ES256"}}} {
		for _, key := range s {
			if !slices.Contains(cloud.accepted, key.Algorithm) {
				warnings = append(warnings,
					fmt.Sprintf(
						"%s does not accept tokens of key %q, whose algorithm is %s. It accepts %s: change the API server's signing key.",
						cloud.name, key.KeyID, key.Algorithm, strings.Join(cloud.accepted, " and ")))
			}
		}
	}
	return warnings
}
