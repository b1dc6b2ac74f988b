package plugin

import (
	"time"

	"github.com/workloadid/workloadid/auth"
)

// ProcessCredentials are AWS credentials for credential_process, a setting in
// the shared configuration files of all AWS SDKs.
type ProcessCredentials struct {
	AccessKeyID, SecretAccessKey, SessionToken string
	// AccountID is the account of the role. Optional.
	AccountID string
	// Expires is the expiry. Zero: never.
	Expires time.Time
}

// Encode returns the answer, version 1 of the protocol.
func (c ProcessCredentials) Encode() ([]byte, error) {
	if c.AccessKeyID == "" || c.SecretAccessKey == "" {
		return nil, &auth.Error{Reason: auth.ErrUnavailable, Message: "there are no keys to hand out"}
	}
	answer := struct {
		Version         int
		AccessKeyID     string `json:"AccessKeyId"`
		SecretAccessKey string
		SessionToken    string `json:",omitempty"`
		Expiration      string `json:",omitempty"`
		AccountID       string `json:"AccountId,omitempty"`
	}{1, c.AccessKeyID, c.SecretAccessKey, c.SessionToken, "", c.AccountID}
	if !c.Expires.IsZero() {
		answer.Expiration = c.Expires.UTC().Format(time.RFC3339)
	}
	return marshal(answer)
}
