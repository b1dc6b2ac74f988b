package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
)

// A program that calls its plugin again and again asks the provider once in a few seconds, and is told the same each time.
func TestARefusalIsKeptForAMoment(t *testing.T) {
	w := newWorld(t)
	a := &app{httpClient: w.cloud.Client()}
	args := []string{"credential-process", w.tokenFile(t, aws.DefaultAudience), "--region=eu-central-1",
		"--annotation=" + aws.RoleARNAnnotation + "=" + role("nobodys"), "--cache-dir=" + filepath.Join(w.home, "kept")}
	call := func(more ...string) error {
		root := a.newRoot()
		root.SetArgs(append(args, more...))
		root.SetOut(io.Discard)
		return root.ExecuteContext(t.Context())
	}
	var e *auth.Error
	for n := range 5 {
		err := call()
		if !errors.As(err, &e) || exitCode(t.Context(), err) != exitDenied || e.StatusCode != 403 || e.Code != "AccessDenied" ||
			!strings.Contains(err.Error(), "trust policy") || strings.Contains(err.Error(), "a few seconds ago") != (n > 0) {
			t.Fatalf("call %d: %v", n, err)
		}
	}
	first := w.mints()
	if first == 0 || first > 4 { // the library tries again by itself
		t.Errorf("%d exchanges", first)
	}
	files, err := filepath.Glob(filepath.Join(w.home, "kept", "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%q, %v", files, err)
	}
	if content, err := os.ReadFile(files[0]); err != nil || strings.Contains(string(content), "eyJ0") {
		t.Errorf("%v: %s", err, content)
	}
	// Whoever cannot wait says so; nothing else is kept from asking.
	if err := call("--no-cache"); err == nil || w.mints() == first {
		t.Errorf("%v after %d exchanges", err, w.mints())
	}
	w.cloud.AWS().SetRole(role("nobodys"), w.trustOfApp())
	if err := call("--no-cache"); err != nil {
		t.Error(err)
	}
}

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
	if c == nil || c.Refused.Message != "m" || !strings.HasSuffix(c.Refused.err().Error(), "; do it (auth.WithScopes)") {
		t.Fatalf("%+v", c)
	}
	if content, err := json.Marshal(c); err != nil || strings.Contains(string(content), "the cause") {
		t.Errorf("%v: %s", err, content)
	}
}

// Nobody gets a refusal for a credential, and it is for the one request only.
func TestARefusalIsNoCredential(t *testing.T) {
	id := parsed(t, "--cache-dir="+filepath.Join(t.TempDir(), "kept"))
	s := &source{key: &sourceKey{Name: "app"}}
	refuse := func(context.Context, []auth.Option) (*credential, error) {
		return nil, &auth.Error{Reason: auth.ErrDenied, StatusCode: 403, Message: "no"}
	}
	grant := func(context.Context, []auth.Option) (*credential, error) {
		return &credential{Token: "granted", Expires: time.Now().Add(time.Hour)}, nil
	}
	for range 2 {
		if c, err := id.get(t.Context(), s, request{Kind: "cluster"}, refuse); c != nil || !errors.Is(err, auth.ErrDenied) {
			t.Errorf("%v, %v", c, err)
		}
		refuse = grant
	}
	if c, err := id.get(t.Context(), s, request{Kind: "registry"}, grant); err != nil || c.Token != "granted" {
		t.Errorf("another request: %v, %v", c, err)
	}
}
