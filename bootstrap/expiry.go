package bootstrap

import (
	"errors"
	"fmt"
	"time"

	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
)

// ExpiryOf returns the expiry in the data of the Secret of a bootstrap token,
// or zero without one. No other key has to be well-formed, so a malformed token
// expires too. An error means that the expiry cannot be parsed. Kubernetes
// treats such a token as expired.
func ExpiryOf(data map[string][]byte) (time.Time, error) {
	text := data[bootstrapapi.BootstrapTokenExpirationKey]
	if len(text) == 0 {
		return time.Time{}, nil
	}
	expires, err := time.Parse(time.RFC3339, string(text))
	if err != nil {
		return time.Time{}, errors.New("the expiration is not a time of RFC 3339")
	}
	if expires.IsZero() {
		expires = expires.Add(time.Second) // past as well, but not the zero time, which means never
	}
	return expires, nil
}

// setExpiry writes the expiry in whole seconds into data. Zero removes it. It
// fails if RFC 3339 cannot express the time, after the year 9999.
func setExpiry(data map[string][]byte, expires time.Time) error {
	if expires.IsZero() {
		delete(data, bootstrapapi.BootstrapTokenExpirationKey)
		return nil
	}
	text := expires.UTC().Format(time.RFC3339)
	if _, err := time.Parse(time.RFC3339, text); err != nil {
		return fmt.Errorf("a token expires in the years 0 to 9999, not at %q; the zero time means never", text)
	}
	data[bootstrapapi.BootstrapTokenExpirationKey] = []byte(text)
	return nil
}
