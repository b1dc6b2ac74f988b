package bootstrap

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"strings"
)

// Sign returns the detached JWS (RFC 7515, appendix F; HS256) of a kubeconfig,
// "<header>..<signature>", as cluster-info carries it. The key is the token's
// secret, and the header has the bytes of Kubernetes. The signature does not
// cover the token's expiry. The zero [Token] returns "".
func Sign(kubeconfig []byte, t Token) string {
	if t.IsZero() {
		return ""
	}
	header := headerOf(t)
	return header + "." + base64.RawURLEncoding.EncodeToString(mac(header, kubeconfig, t))
}

// ErrSignature means that the token did not sign this content.
var ErrSignature = errors.New("the signature does not fit the token and the content")

// Verify checks a signature of [Sign] in constant time. It refuses every header
// that Sign does not write, so an attacker cannot choose the algorithm. Every
// failure is [ErrSignature]. The zero [Token] verifies nothing.
func Verify(kubeconfig []byte, jws string, t Token) error {
	if t.IsZero() {
		return ErrSignature // an empty key is not secret
	}
	header := headerOf(t)
	encoded, ok := strings.CutPrefix(jws, header+".")
	if !ok || len(encoded) != base64.RawURLEncoding.EncodedLen(sha256.Size) {
		return ErrSignature
	}
	given, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if err != nil || !hmac.Equal(given, mac(header, kubeconfig, t)) {
		return ErrSignature
	}
	return nil
}

// headerOf returns {"alg":"HS256","kid":"<id>"} in base64url with a dot.
func headerOf(t Token) string {
	return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","kid":"`+t.id+`"}`)) + "."
}

// mac hashes header and content in base64url without building the whole text.
func mac(header string, content []byte, t Token) []byte {
	mac := hmac.New(sha256.New, []byte(t.secret.Reveal()))
	_, _ = io.WriteString(mac, header) // a hash accepts all writes
	encoder := base64.NewEncoder(base64.RawURLEncoding, mac)
	_, _ = encoder.Write(content)
	_ = encoder.Close()
	return mac.Sum(nil)
}
