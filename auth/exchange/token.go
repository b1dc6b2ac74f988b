package exchange

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/provider"
	"github.com/workloadid/workloadid/internal/redact"
)

// Token is a token that the authorization server issued. It is immutable and prints as a redacted summary.
type Token struct {
	value      redact.Secret
	bearer     bool
	issuedType string
	scope      string // as granted, separated by blanks
	expiresAt  time.Time
}

// Reveal returns the token itself.
func (t *Token) Reveal() string { return t.value.Reveal() }

// Type returns how the token is used: "Bearer", or "N_A" for one that is not an access token (RFC 8693, section 2.2.1).
func (t *Token) Type() string {
	if t.bearer {
		return "Bearer"
	}
	return "N_A"
}

// IssuedTokenType returns the URN of the kind of token, such as TokenTypeAccessToken. It is "" if the server did not tell.
func (t *Token) IssuedTokenType() string { return t.issuedType }

// Scopes returns the scopes that were granted, in the server's order: those asked for if it did not tell.
func (t *Token) Scopes() []string { return strings.Fields(t.scope) }

// ExpiresAt returns the time at which the token expires, or 24 hours after it was issued if that is earlier.
func (t *Token) ExpiresAt() time.Time { return t.expiresAt }

// GetDuration implements auth.Token.
func (t *Token) GetDuration() time.Duration { return time.Until(t.expiresAt) }

// OAuth2Token returns the token in the type of golang.org/x/oauth2, which does not redact itself. A token that is not an
// access token is ErrMisconfigured.
func (t *Token) OAuth2Token() (*oauth2.Token, error) {
	if !t.bearer {
		return nil, self.Misconfigured("ask for TokenTypeAccessToken in Provider.RequestedTokenType, or use Reveal",
			"the server issued a token of type N_A (%.100q), which is no access token", t.issuedType)
	}
	return &oauth2.Token{AccessToken: t.value.Reveal(), TokenType: "Bearer", Expiry: t.expiresAt}, nil
}

// FromToken returns the Token that auth.GetAccessToken returned for a provider of this package.
func FromToken(t auth.Token) (*Token, error) {
	own, ok := t.(*Token)
	if !ok || own == nil {
		return nil, provider.Name(ProviderName).Misconfigured("get it from auth.GetAccessToken with this provider",
			"the token is a %T, not an *exchange.Token", t)
	}
	return own, nil
}

func (t Token) summary() string {
	return fmt.Sprintf("OAuth 2.0 token of type %s, redacted, expires %s", t.Type(), t.expiresAt.UTC().Format(time.RFC3339))
}

// String returns the redacted summary.
func (t Token) String() string { return t.summary() }

// Format prints the redacted summary under every verb.
func (t Token) Format(f fmt.State, _ rune) { redact.Print(f, t.summary()) }

// LogValue is the redacted summary for slog.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.summary()) }

// MarshalLog is the redacted summary for logr.
func (t Token) MarshalLog() any { return t.summary() }

// MarshalJSON encodes the redacted summary.
func (t Token) MarshalJSON() ([]byte, error) { return json.Marshal(t.summary()) }
