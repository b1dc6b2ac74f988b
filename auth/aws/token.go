package aws

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/redact"
)

// Token is a set of AWS credentials. It is immutable and prints as a redacted summary.
type Token struct {
	accessKeyID     string
	secretAccessKey redact.Secret
	sessionToken    redact.Secret
	expiresAt       time.Time // zero: the credentials do not expire
	accountID       string
	assumedRoleARN  string
	sessionName     string
}

// staticLife is how long credentials without an expiry count as valid before the environment is asked again. Only
// the controller's own can be of that kind.
const staticLife = time.Hour

// GetDuration implements auth.Token.
func (t *Token) GetDuration() time.Duration {
	if t.expiresAt.IsZero() {
		return staticLife
	}
	return time.Until(t.expiresAt)
}

// Credentials returns the credentials in the SDK's type. Unlike the Token it does not redact itself.
func (t *Token) Credentials() aws.Credentials {
	return aws.Credentials{
		AccessKeyID:     t.accessKeyID,
		SecretAccessKey: t.secretAccessKey.Reveal(),
		SessionToken:    t.sessionToken.Reveal(),
		Source:          "workloadid",
		CanExpire:       !t.expiresAt.IsZero(),
		Expires:         t.expiresAt,
		AccountID:       t.accountID,
	}
}

// AccessKeyID returns the ID of the access key, which is not a secret: CloudTrail shows it.
func (t *Token) AccessKeyID() string { return t.accessKeyID }

// ExpiresAt returns the time at which the credentials expire. It is zero if they do not.
func (t *Token) ExpiresAt() time.Time { return t.expiresAt }

// AccountID returns the account of the assumed role, "" if it is not known.
func (t *Token) AccountID() string { return t.accountID }

// AssumedRoleARN returns the ARN of the session, arn:<partition>:sts::<account>:assumed-role/<role>/<session name>. It is
// "" for the controller's own identity.
func (t *Token) AssumedRoleARN() string { return t.assumedRoleARN }

// SessionName returns the name of the session. It is "" for the controller's own identity.
func (t *Token) SessionName() string { return t.sessionName }

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
	if !t.expiresAt.IsZero() {
		expiry = "expires " + t.expiresAt.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("AWS credentials %s, redacted, %s", t.accessKeyID, expiry)
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
