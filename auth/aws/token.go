package aws

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/awsname"
	"github.com/workloadid/workloadid/internal/redact"
)

// Token is a set of AWS credentials. It is immutable and prints as a redacted summary.
type Token struct {
	// text has all parts one after the other: a cache may hold very many tokens, and one string is smaller than six.
	text redact.Secret
	ends [partCount - 1]uint16 // of all parts but the last
	// expires is in seconds since 1970. Zero: the credentials do not expire.
	expires int64
}

// The parts of a token.
const (
	partKeyID = iota
	partSecret
	partSessionToken
	partSession     // the ARN of the session, shortened
	partAccount     // empty if it is that of the ARN
	partSessionName // empty if it is the end of the ARN
	partCount
)

// maxToken is far more than any service of AWS accepts in a header, in bytes.
const maxToken = 1<<16 - 1

// newToken returns nil if the parts are too long to be credentials.
func newToken(expires time.Time, parts [partCount]string) *Token {
	arn := parts[partSession]
	parts[partSession] = shorten(arn)
	if parts[partAccount] == accountOf(arn) {
		parts[partAccount] = ""
	}
	if parts[partSessionName] == sessionOf(arn) {
		parts[partSessionName] = ""
	}
	text := strings.Join(parts[:], "")
	if len(text) > maxToken {
		return nil
	}
	t := &Token{text: redact.New(text)}
	if !expires.IsZero() {
		t.expires = expires.Unix()
	}
	end := 0
	for i := range t.ends {
		end += len(parts[i])
		t.ends[i] = uint16(end) //nolint:gosec // at most maxToken
	}
	return t
}

func (t *Token) part(n int) string {
	text := t.text.Reveal()
	start, end := 0, len(text)
	if n > 0 {
		start = int(t.ends[n-1])
	}
	if n < len(t.ends) {
		end = int(t.ends[n])
	}
	return text[start:end]
}

// staticLife is how long credentials without an expiry count as valid before the environment is asked again. Only
// the controller's own can be of that kind.
const staticLife = time.Hour

// GetDuration implements auth.Token.
func (t *Token) GetDuration() time.Duration {
	if t.expires == 0 {
		return staticLife
	}
	return time.Until(time.Unix(t.expires, 0))
}

// Credentials returns the credentials in the SDK's type. Unlike the Token it does not redact itself.
func (t *Token) Credentials() aws.Credentials {
	return aws.Credentials{
		AccessKeyID:     t.part(partKeyID),
		SecretAccessKey: t.part(partSecret),
		SessionToken:    t.part(partSessionToken),
		Source:          "workloadid",
		CanExpire:       t.expires != 0,
		Expires:         t.ExpiresAt(),
		AccountID:       t.AccountID(),
	}
}

// AccessKeyID returns the ID of the access key, which is not a secret: CloudTrail shows it.
func (t *Token) AccessKeyID() string { return t.part(partKeyID) }

// ExpiresAt returns the time at which the credentials expire, in whole seconds. It is zero if they do not.
func (t *Token) ExpiresAt() time.Time {
	if t.expires == 0 {
		return time.Time{}
	}
	return time.Unix(t.expires, 0).UTC()
}

// AccountID returns the account of the assumed role, "" if it is not known.
func (t *Token) AccountID() string {
	if own := t.part(partAccount); own != "" {
		return own
	}
	if short := t.part(partSession); isShort(short) {
		return short[:accountLength]
	}
	return accountOf(t.part(partSession))
}

// AssumedRoleARN returns the ARN of the session, arn:<partition>:sts::<account>:assumed-role/<role>/<session name>. It is
// "" for the controller's own identity.
func (t *Token) AssumedRoleARN() string { return lengthen(t.part(partSession)) }

// SessionName returns the name of the session. It is "" for the controller's own identity.
func (t *Token) SessionName() string {
	if own := t.part(partSessionName); own != "" {
		return own
	}
	return sessionOf(t.part(partSession))
}

const (
	sessionPrefixARN = "arn:aws:sts::"
	sessionInfixARN  = ":assumed-role/"
	accountLength    = 12
)

// shorten writes the ARN of a session, if it is one of the partition aws, as <account>/<role>/<session name>.
func shorten(arn string) string {
	rest, ok := strings.CutPrefix(arn, sessionPrefixARN)
	account, session, found := strings.Cut(rest, sessionInfixARN)
	if !ok || !found || !awsname.ValidAccount(account) {
		return arn
	}
	return account + "/" + session
}

// lengthen undoes shorten.
func lengthen(arn string) string {
	if !isShort(arn) {
		return arn
	}
	return sessionPrefixARN + arn[:accountLength] + sessionInfixARN + arn[accountLength+1:]
}

func isShort(arn string) bool {
	return len(arn) > accountLength && arn[accountLength] == '/' && awsname.ValidAccount(arn[:accountLength])
}

// sessionOf returns the name of the session in its ARN, "" if there is none.
func sessionOf(arn string) string { return arn[strings.LastIndexByte(arn, '/')+1:] }

// FromToken returns the AWS credentials in a token that auth.GetAccessToken returned for this provider.
func FromToken(t auth.Token) (*Token, error) {
	own, ok := t.(*Token)
	if !ok || own == nil {
		return nil, &auth.Error{Provider: ProviderName, Reason: auth.ErrMisconfigured,
			Message: fmt.Sprintf("the token is a %T, not an *aws.Token", t),
			Remedy:  "get it from auth.GetAccessToken with this provider"}
	}
	return own, nil
}

func (t Token) summary() string {
	expiry := "never expires"
	if t.expires != 0 {
		expiry = "expires " + t.ExpiresAt().Format(time.RFC3339)
	}
	return fmt.Sprintf("AWS credentials %s, redacted, %s", t.AccessKeyID(), expiry)
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
