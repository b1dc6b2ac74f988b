package credentials

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/workloadid/workloadid/auth"
)

// What may be different with the next call is not kept.
func TestWhatIsNotKept(t *testing.T) {
	for name, err := range map[string]error{
		"nothing":        errors.New("away"),
		"throttled":      &auth.Error{Reason: auth.ErrThrottled, StatusCode: 429},
		"unavailable":    &auth.Error{Reason: auth.ErrUnavailable, StatusCode: 503},
		"without a call": &auth.Error{Reason: auth.ErrDenied},
	} {
		if c := refusedBy(fmt.Errorf("it failed: %w", err)); c != nil {
			t.Errorf("%s: %+v", name, c.Refused)
		}
	}
	c := refusedBy(fmt.Errorf("it failed: %w", &auth.Error{Reason: auth.ErrMisconfigured, StatusCode: 400, Message: "m",
		Remedy: "do it", Option: "auth.WithScopes", Err: errors.New("the cause")}))
	if c == nil || c.Refused.Message != "m" || c.Refused.Option != "auth.WithScopes" {
		t.Fatalf("%+v", c)
	}
	if content, err := json.Marshal(c); err != nil || strings.Contains(string(content), "the cause") {
		t.Errorf("%v: %s", err, content)
	}
}

// Nobody gets a refusal for a credential, and it is for the one request only.
func TestARefusalIsNoCredential(t *testing.T) {
	id := parsed(t, "--cache-dir="+filepath.Join(t.TempDir(), "kept"))
	s := &source{key: "app"}
	refuse := func(context.Context, []auth.Option) (*credential, error) {
		return nil, &auth.Error{Reason: auth.ErrDenied, StatusCode: 403, Message: "no"}
	}
	grant := func(context.Context, []auth.Option) (*credential, error) {
		return bearer("granted", time.Now().Add(time.Hour)), nil
	}
	for range 2 {
		if c, err := id.get(t.Context(), s, wanted("cluster", refuse)); c != nil || !errors.Is(err, auth.ErrDenied) {
			t.Errorf("%v, %v", c, err)
		}
		refuse = grant
	}
	if c, err := id.get(t.Context(), s, wanted("registry", grant)); err != nil || c.BearerToken != "granted" {
		t.Errorf("another request: %v, %v", c, err)
	}
}
