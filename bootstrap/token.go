package bootstrap

import (
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"strings"

	"github.com/workloadid/workloadid/internal/redact"
)

const (
	idLength     = 6
	secretLength = 16
	tokenChars   = "abcdefghijklmnopqrstuvwxyz0123456789"
)

// Token is a bootstrap token, "<id>.<secret>" with 6 and 16 lower-case letters
// and digits. The ID is public, the secret is not. A Token prints only its ID
// under every verb. The zero value means that no token is set.
type Token struct {
	id     string
	secret redact.Secret
}

// ParseToken parses "<id>.<secret>". Its errors do not repeat the token.
func ParseToken(s string) (Token, error) {
	id, secret, ok := strings.Cut(s, ".")
	switch {
	case !ok:
		return Token{}, errors.New("a bootstrap token is <id>.<secret>, with a dot between them")
	case !validPart(id, idLength):
		return Token{}, fmt.Errorf("the ID of a bootstrap token is %d lower-case letters and digits", idLength)
	case !validPart(secret, secretLength):
		return Token{}, fmt.Errorf("the secret of a bootstrap token is %d lower-case letters and digits", secretLength)
	}
	return Token{id: id, secret: redact.New(secret)}, nil
}

func validPart(s string, length int) bool {
	return len(s) == length && strings.Trim(s, tokenChars) == ""
}

// GenerateToken returns a new random token.
func GenerateToken() (Token, error) {
	id, err := randomPart(idLength)
	if err != nil {
		return Token{}, err
	}
	secret, err := randomPart(secretLength)
	return Token{id: id, secret: redact.New(secret)}, err
}

// randomPart chooses each character with the same probability.
func randomPart(length int) (string, error) {
	part := make([]byte, length)
	for i := range part {
		n, err := rand.Int(rand.Reader, big.NewInt(int64(len(tokenChars))))
		if err != nil {
			return "", err
		}
		part[i] = tokenChars[n.Int64()]
	}
	return string(part), nil
}

// ID returns the public half.
func (t Token) ID() string { return t.id }

// Reveal returns the whole token, for the joining machine.
func (t Token) Reveal() string {
	if t.IsZero() {
		return ""
	}
	return t.id + "." + t.secret.Reveal()
}

// IsZero reports whether no token is set.
func (t Token) IsZero() bool { return t.id == "" }

// Equal compares in constant time.
func (t Token) Equal(other Token) bool {
	return subtle.ConstantTimeCompare([]byte(t.Reveal()), []byte(other.Reveal())) == 1
}

func (t Token) summary() string { return t.id + ".[redacted]" }

// String returns the ID with the secret redacted; see Reveal.
func (t Token) String() string { return t.summary() }

// Format prints the ID with the secret redacted under every verb.
func (t Token) Format(f fmt.State, _ rune) { redact.Print(f, t.summary()) }

// LogValue returns the ID with the secret redacted.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.summary()) }

// MarshalLog returns the ID with the secret redacted.
func (t Token) MarshalLog() any { return t.summary() }

// MarshalText returns the ID with the secret redacted. [Token.UnmarshalText]
// refuses its result.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.summary()), nil }

// UnmarshalText parses a token from JSON and YAML. An error leaves t unchanged
// and does not repeat the token.
func (t *Token) UnmarshalText(text []byte) error {
	parsed, err := ParseToken(string(text))
	if err == nil {
		*t = parsed
	}
	return err
}
