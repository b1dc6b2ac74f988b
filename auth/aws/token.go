package aws

import (
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/redact"
)

// Token is a set of AWS credentials. It is immutable and prints as a redacted
// summary.
type Token struct {
	// text holds all parts: a cache may hold very many tokens, and one string
	// is smaller than seven.
	text redact.Secret
	// expires is in seconds since 1970. Zero: the credentials do not expire.
	expires int64
}

// The parts of a token.
const (
	partKeyID = iota
	partSecret
	partSessionToken
	partAccount
	partSession   // the name of the session
	partPartition // this one and the next come from the session's ARN, empty if it is unknown
	partRole
	partCount
)

// separator occurs in no credential, because credentials go into headers.
const separator = "\x00"

// newToken returns nil if a part is malformed.
func newToken(expires time.Time, parts [partCount]string) *Token {
	text := strings.Join(parts[:], separator)
	if strings.Count(text, separator) != partCount-1 {
		return nil
	}
	t := &Token{text: redact.New(text)}
	if !expires.IsZero() {
		t.expires = expires.Unix()
	}
	return t
}

func (t *Token) parts() (p [partCount]string) {
	rest := t.text.Reveal()
	for i := range p {
		p[i], rest, _ = strings.Cut(rest, separator)
	}
	return p
}

// staticLife is the assumed lifetime of credentials without an expiry, which
// only the controller itself can have.
const staticLife = time.Hour

// GetDuration implements [auth.Token].
func (t *Token) GetDuration() time.Duration {
	if t.expires == 0 {
		return staticLife
	}
	return time.Until(time.Unix(t.expires, 0))
}

// Credentials returns the credentials in the SDK's type, which does not redact
// itself.
func (t *Token) Credentials() aws.Credentials {
	p := t.parts()
	return aws.Credentials{
		AccessKeyID:     p[partKeyID],
		SecretAccessKey: p[partSecret],
		SessionToken:    p[partSessionToken],
		Source:          "workloadid",
		CanExpire:       t.expires != 0,
		Expires:         t.ExpiresAt(),
		AccountID:       p[partAccount],
	}
}

// AccessKeyID returns the ID of the access key. It is not secret.
func (t *Token) AccessKeyID() string { return t.parts()[partKeyID] }

// ExpiresAt returns the time at which the credentials expire, in whole seconds.
// It is zero if they do not.
func (t *Token) ExpiresAt() time.Time {
	if t.expires == 0 {
		return time.Time{}
	}
	return time.Unix(t.expires, 0).UTC()
}

// AccountID returns the account of the assumed role, "" if it is unknown.
func (t *Token) AccountID() string { return t.parts()[partAccount] }

// AssumedRoleARN returns the ARN of the session,
// arn:<partition>:sts::<account>:assumed-role/<role>/<session name>. It is ""
// for the controller's own identity.
func (t *Token) AssumedRoleARN() string {
	p := t.parts()
	if p[partRole] == "" {
		return ""
	}
	return "arn:" + p[partPartition] + ":sts::" + p[partAccount] + ":assumed-role/" + p[partRole] + "/" + p[partSession]
}

// SessionName returns the name of the session. It is "" for the controller's
// own identity.
func (t *Token) SessionName() string { return t.parts()[partSession] }

// FromToken returns the AWS credentials in a token that [auth.GetAccessToken]
// returned for this provider.
func FromToken(t auth.Token) (*Token, error) {
	return provider.As[Token](self, t)
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

// MarshalText encodes the redacted summary, for JSON, slog and logr too.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.summary()), nil }
