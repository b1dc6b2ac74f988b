package redact_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/redact"
)

const canary = "canary-secret-value"

func TestSecretNeverPrints(t *testing.T) {
	type inner struct {
		hidden redact.Secret
		Shown  redact.Secret
	}
	values := map[string]any{
		"value":   redact.New(canary),
		"struct":  inner{redact.New(canary), redact.New(canary)},
		"pointer": &inner{redact.New(canary), redact.New(canary)},
		"map":     map[string]redact.Secret{"k": redact.New(canary)},
	}
	for name, v := range values {
		var out strings.Builder
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%p", "%T", "%08.3f"} {
			fmt.Fprintf(&out, verb, v)
		}
		slog.New(slog.NewTextHandler(&out, nil)).Info("m", "v", v)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "v", v)
		if err := json.NewEncoder(&out).Encode(v); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, form := range []string{canary, fmt.Sprintf("%x", canary), fmt.Sprintf("%X", canary)} {
			if strings.Contains(out.String(), form) {
				t.Errorf("%s leaks: %s", name, out.String())
			}
		}
	}
	if got := redact.New(canary).Reveal(); got != canary {
		t.Errorf("Reveal() = %q", got)
	}
	if got := (redact.Secret{}).Reveal(); got != "" {
		t.Errorf("zero Secret reveals %q", got)
	}
}

// Packages that compare in tests print by reflection alone when they find a
// difference, and follow pointers.
func TestSecretIsOutOfReachOfReflection(t *testing.T) {
	secret := redact.New(canary)
	if walked := walk(reflect.ValueOf(struct{ S redact.Secret }{secret})); strings.Contains(walked, canary) {
		t.Errorf("reflection gets at %s", walked)
	}
	copied := secret
	if copied != secret || !reflect.DeepEqual([]redact.Secret{copied}, []redact.Secret{secret}) {
		t.Error("a copy is not equal")
	}
}

// walk collects all strings that can be reached without calling a method.
func walk(v reflect.Value) string {
	switch v.Kind() {
	case reflect.String:
		return v.String()
	case reflect.Pointer, reflect.Interface:
		return walk(v.Elem())
	case reflect.Struct:
		var all string
		for i := range v.NumField() {
			all += walk(v.Field(i))
		}
		return all
	}
	return ""
}

func TestURL(t *testing.T) {
	for address, want := range map[string]string{
		"https://h/p":            "https://h/p",
		"https://u:p@h/p?q#f":    "https://[redacted]@h/p",
		"http:u:p@h":             "[redacted]@h",
		"https://u:p@x@h":        "https://[redacted]@h",
		"u:p@h":                  "[redacted]@h",
		"https://h?token=secret": "https://h",
	} {
		if got := redact.URL(address); got != want {
			t.Errorf("%q: got %q", address, got)
		}
	}
	if got := redact.URL(strings.Repeat("x", 10_000)); len(got) > 310 {
		t.Errorf("%d bytes", len(got))
	}
}
