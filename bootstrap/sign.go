package bootstrap

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"hash"
	"strings"
)

// Sign returns the detached JWS (RFC 7515, appendix F; HS256) of a kubeconfig, "<header>..<signature>", as cluster-info carries
// it. The key is the token's secret, and the header has the bytes of Kubernetes. The signature does not cover the token's expiry.
// The zero Token returns "".
func Sign(kubeconfig []byte, t Token) string {
	if t.IsZero() {
		return ""
	}
	s := newSigner(t)
	mac := s.sign(kubeconfig)
	jws := make([]byte, 0, len(s.header)+1+base64.RawURLEncoding.EncodedLen(len(mac)))
	jws = append(append(jws, s.header...), '.')
	return string(base64.RawURLEncoding.AppendEncode(jws, mac))
}

// ErrSignature means that the token did not sign this content.
var ErrSignature = errors.New("the signature does not fit the token and the content")

// Verify checks a signature of Sign in constant time. It refuses every header that Sign does not write, so an attacker cannot
// choose the algorithm. Every failure is ErrSignature. The zero Token verifies nothing.
func Verify(kubeconfig []byte, jws string, t Token) error {
	if t.IsZero() {
		return ErrSignature // an empty key is no secret
	}
	s := newSigner(t)
	rest, ok := strings.CutPrefix(jws, string(s.header))
	if !ok {
		return ErrSignature
	}
	encoded, ok := strings.CutPrefix(rest, ".")
	if !ok || len(encoded) != base64.RawURLEncoding.EncodedLen(sha256.Size) {
		return ErrSignature
	}
	given, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if err != nil || !hmac.Equal(given, s.sign(kubeconfig)) {
		return ErrSignature
	}
	return nil
}

// signer holds the header, {"alg":"HS256","kid":"<id>"} in base64url with a dot, and a buffer.
type signer struct {
	mac    hash.Hash
	header []byte
	room   []byte
}

// chunk is the number of bytes to encode at once. It is a multiple of three, so only the last chunk may need padding.
const chunk = 3 * 256

func newSigner(t Token) signer {
	room := make([]byte, 0, chunk/3*4)
	json := append(append(append(room, `{"alg":"HS256","kid":"`...), t.id...), `"}`...)
	header := make([]byte, 0, base64.RawURLEncoding.EncodedLen(len(json))+1)
	header = append(base64.RawURLEncoding.AppendEncode(header, json), '.')
	return signer{hmac.New(sha256.New, []byte(t.secret.Reveal())), header, room}
}

// sign hashes the encoding of content without building it as a whole.
func (s signer) sign(content []byte) []byte {
	s.mac.Write(s.header)
	for len(content) > 0 {
		n := min(chunk, len(content))
		s.mac.Write(base64.RawURLEncoding.AppendEncode(s.room, content[:n]))
		content = content[n:]
	}
	return s.mac.Sum(s.room)
}
