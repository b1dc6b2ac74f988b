// Package jwt reads the claims of tokens without verifying them. The service
// that accepts a token verifies them; here the claims only decide whether a
// token is fit to be sent out, and when it ends.
package jwt

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/workloadid/workloadid/internal/exactjson"
)

// MaxSize bounds what is taken for a token, in bytes. Tokens of real API
// servers have one or two thousand.
const MaxSize = 64 << 10

// Claims are the claims of RFC 7519 that ServiceAccount tokens have, and the
// UIDs from the private claims.
type Claims struct {
	Issuer     string   `json:"iss"`
	Subject    string   `json:"sub"`
	Audience   Audience `json:"aud"`
	IssuedAt   Time     `json:"iat"`
	Expiry     Time     `json:"exp"`
	Kubernetes struct {
		ServiceAccount struct {
			UID string `json:"uid"`
		} `json:"serviceaccount"`
		Pod struct {
			UID string `json:"uid"`
		} `json:"pod"` // of a token that is bound to a pod
	} `json:"kubernetes.io"`
}

// Parse returns the claims of a compact JWS. Its errors never hold a part of
// the token.
func Parse(token string) (*Claims, error) {
	if len(token) > MaxSize {
		return nil, fmt.Errorf("it is larger than %d bytes", MaxSize)
	}
	header, rest, _ := strings.Cut(token, ".")
	payload, signature, found := strings.Cut(rest, ".")
	if !found || header == "" || signature == "" || strings.Contains(signature, ".") {
		return nil, errors.New("it is not a JWT: it does not have three parts")
	}
	content, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return nil, errors.New("it is not a JWT: its payload is not base64url")
	}
	c := &Claims{}
	if err := exactjson.Unmarshal(content, c); err != nil {
		return nil, errors.New("it is not a JWT: its payload is not a JSON object of claims")
	}
	return c, nil
}

// Audience is a string or a list of strings (RFC 7519, section 4.1.3).
type Audience []string

// UnmarshalJSON accepts both forms.
func (a *Audience) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*a = Audience{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(a))
}

// Time is a NumericDate (RFC 7519, section 2). The zero value means that the
// claim is missing or out of range.
type Time struct{ time.Time }

// maxTime is a time that no honest token goes beyond, in seconds since 1970:
// the end of the year 9999.
const maxTime = 253402300799

// UnmarshalJSON reads seconds since 1970, with or without a fraction.
func (t *Time) UnmarshalJSON(data []byte) error {
	var seconds float64
	if err := json.Unmarshal(data, &seconds); err != nil {
		return err
	}
	if seconds > 0 && seconds <= maxTime {
		t.Time = time.Unix(int64(seconds), 0)
	}
	return nil
}
