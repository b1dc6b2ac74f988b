package bootstrap

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// Pin is the SHA-256 of a certificate's public key (DER SubjectPublicKeyInfo,
// RFC 7469). A renewed certificate with the same key has the same pin.
type Pin [sha256.Size]byte

// PinOf returns the pin of a certificate.
func PinOf(c *x509.Certificate) Pin { return sha256.Sum256(c.RawSubjectPublicKeyInfo) }

const pinPrefix = "sha256:"

func parsePin(s string) (Pin, error) {
	var p Pin
	if len(s) < len(pinPrefix) || !strings.EqualFold(s[:len(pinPrefix)], pinPrefix) {
		return p, fmt.Errorf("a pin is sha256:<64 hexadecimal digits>, not %s", shownPin(s))
	}
	digits := s[len(pinPrefix):]
	if len(digits) != hex.EncodedLen(len(p)) {
		return p, fmt.Errorf("a pin has 64 hexadecimal digits after %q, this one has %d", pinPrefix, len(digits))
	}
	if _, err := hex.Decode(p[:], []byte(digits)); err != nil {
		return p, fmt.Errorf("a pin is sha256:<64 hexadecimal digits>, not %s", shownPin(s))
	}
	return p, nil
}

// shownPin keeps a token out of an error message, even a malformed token that
// was given instead of a pin.
func shownPin(s string) string {
	if strings.Contains(s, ".") {
		return "what has a dot, as a token has"
	}
	return fmt.Sprintf("%.100q", s)
}

// String returns the pin in the form that [ParsePins] accepts.
func (p Pin) String() string { return pinPrefix + hex.EncodeToString(p[:]) }

// PinSet is a set of pins. The empty set pins nothing.
type PinSet []Pin

// ParsePins parses pins, each "sha256:<64 hexadecimal digits>" in either case.
func ParsePins(pins ...string) (PinSet, error) {
	var set PinSet
	for _, s := range pins {
		p, err := parsePin(s)
		if err != nil {
			return nil, err
		}
		set = append(set, p)
	}
	return set, nil
}

// pinned returns the certificates that are in the set.
func (s PinSet) pinned(certificates []*x509.Certificate) []*x509.Certificate {
	var pinned []*x509.Certificate
	for _, c := range certificates {
		if slices.Contains(s, PinOf(c)) {
			pinned = append(pinned, c)
		}
	}
	return pinned
}
