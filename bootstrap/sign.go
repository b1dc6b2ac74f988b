package bootstrap

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"hash"
	"strings"
)

// Sign returns the detached JWS (RFC 7515, appendix F; HS256) of a kubeconfig with a token, in the form in which
// cluster-info carries it: "<header>..<signature>". The key is the token's secret, and the bytes of the header are those of
// Kubernetes. The token's expiry is not part of what is signed. The zero Token has no key: it signs nothing, and the result is
// empty.
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

// ErrSignature means that a signature is not that of the token: the content was changed, or signed with another token.
var ErrSignature = errors.New("the signature does not fit the token and the content")

// Verify checks what Sign returned, in constant time. Any header but the one that Sign writes is refused, so nobody else
// chooses the algorithm. The error is ErrSignature, whatever is wrong; nothing verifies with the zero Token.
func Verify(kubeconfig []byte, jws string, t Token) error {
	if t.IsZero() {
		return ErrSignature // an empty key is everybody's
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

// signer has the header, {"alg":"HS256","kid":"<id>"} in base64url with a dot behind it, and room to work in.
type signer struct {
	mac    hash.Hash
	header []byte
	room   []byte
}

// chunk is how much is encoded at once: whole groups of three bytes, so that there is no padding before the end.
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
