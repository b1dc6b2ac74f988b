package proxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// credentials hold the answer to applications. They are immutable.
type credentials struct {
	accessKeyID string
	expires     time.Time
	body        json.RawMessage
}

func (c *credentials) validAt(now time.Time) bool {
	return c != nil && now.Before(c.expires.Add(-margin))
}

// parseCredentials reads the server's answer and encodes it anew: all four
// fields, and an expiry with Z, whatever the server wrote. The JavaScript SDK
// fails without the Z, and botocore fails without a field. Go never renews
// credentials without an expiry.
func parseCredentials(body []byte, now time.Time) (*credentials, error) {
	var answer struct {
		AccessKeyID                        string `json:"AccessKeyId"`
		SecretAccessKey, Token, Expiration string
	}
	if json.Unmarshal(body, &answer) != nil {
		return nil, errors.New("it is not the JSON of the container-credentials protocol") // the error could quote a secret
	}
	if answer.AccessKeyID == "" || answer.SecretAccessKey == "" || answer.Token == "" {
		return nil, errors.New("AccessKeyId, SecretAccessKey or Token is missing")
	}
	expires, err := time.Parse(time.RFC3339, answer.Expiration)
	if err != nil {
		return nil, errors.New("the Expiration is missing or not in the form of RFC 3339")
	}
	// A slow clock would let applications keep credentials that AWS refuses. No
	// credentials outlive the session.
	if latest := now.Add(maxLifetime); expires.After(latest) {
		expires = latest
	}
	c := &credentials{accessKeyID: answer.AccessKeyID, expires: expires.UTC().Truncate(time.Second)}
	if !c.validAt(now) {
		return nil, fmt.Errorf("the credentials expire at %s, less than a minute from now: check the clock of the node",
			c.expires.Format(time.RFC3339))
	}
	answer.Expiration = c.expires.Format(time.RFC3339)
	c.body, err = json.Marshal(answer)
	return c, err
}
