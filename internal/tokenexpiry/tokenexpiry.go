// Package tokenexpiry reads and writes the expiry in the Secret of a bootstrap
// token. No other key of the Secret must be well-formed, so a malformed token
// expires too.
package tokenexpiry

import (
	"errors"
	"fmt"
	"time"

	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
)

// Of returns the expiry in the data of a Secret, zero for none. An error means
// that the expiry cannot be parsed. Kubernetes treats such a token as expired.
func Of(data map[string][]byte) (time.Time, error) {
	text := data[bootstrapapi.BootstrapTokenExpirationKey]
	if len(text) == 0 {
		return time.Time{}, nil
	}
	expires, err := time.Parse(time.RFC3339, string(text))
	if err != nil {
		return time.Time{}, errors.New("the expiration is not a time of RFC 3339")
	}
	if expires.IsZero() {
		expires = expires.Add(time.Second) // equally past, and not the zero time, which means never
	}
	return expires, nil
}

// Set writes the expiry in whole seconds into data. Zero removes it. It fails
// if RFC 3339 cannot express the time, after the year 9999.
func Set(data map[string][]byte, expires time.Time) error {
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

// CheckCreated fails if the expiry had passed when the API server created the
// object, by the API server's clock. The local clock may be behind it. A zero
// time means that the object never expires, or that the server named no time.
func CheckCreated(expires, created time.Time) error {
	if expires.IsZero() || created.IsZero() || created.Before(expires) {
		return nil
	}
	return fmt.Errorf("it expires at %q, but the cluster's clock shows %q: correct the clock of this machine or of the cluster, or choose a later expiry",
		expires.UTC().Format(time.RFC3339), created.UTC().Format(time.RFC3339))
}
