package redact_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

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

// Packages that compare in tests print by reflection alone when they find a difference, and follow pointers.
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

func TestText(t *testing.T) {
	jwt := "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl"
	for name, tc := range map[string]struct{ in, want string }{
		"plain":            {"Incorrect token audience", "Incorrect token audience"},
		"whole token":      {"bad token " + jwt + "!", "bad token [redacted]!"},
		"part of a token":  {"payload eyJzdWIiOiJhIn0 seen", "payload [redacted] seen"},
		"somebody's login": {"you sent Bearer exec-secret-0123456789 to us", "you sent Bearer [redacted] to us"},
		"in a header":      {`{"authorization":"basic am9lOmh1bnRlcjItcGFzczE="}`, `{"authorization":"basic [redacted]"}`},
		"in quotes":        {`sent "Bearer am9lOmh1bnRlcjItcGFzczE=", and "x"`, `sent "Bearer [redacted]", and "x"`},
		"a challenge":      {`Bearer authorization_uri="https://h/t", error="e"`, `Bearer authorization_uri="https://h/t", error="e"`},
		"somebody's JWT":   {"saw eyJhbGciOiJub25lIn0.eyJzdWIiOiJiIn0.", "saw [redacted]"},
		"words":            {"Basic authentication is off, bearer tokens expired", "Basic authentication is off, bearer tokens expired"},
		"line breaks":      {"a\r\nb\x00c", "a  b c"},
		"terminal escapes": {"\x1b[31mred", "[31mred"},
		"not UTF-8":        {"a\xffb", "a b"},
	} {
		if got := redact.Text(tc.in, jwt); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
	if got := redact.Text(strings.Repeat("ä", 10000)); len(got) > 520 {
		t.Errorf("%d bytes of a stranger's message survive", len(got))
	}
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
	if got := redact.URL(strings.Repeat("x", 10_000)); len(got) > 400 {
		t.Errorf("%d bytes", len(got))
	}
}

// Whatever a stranger writes, it is one bounded line of printable text, without the secret.
func FuzzText(f *testing.F) {
	for _, text := range []string{"%41%", `\u004`, "&#x41;&", "bearer\t", "eyJhbGciOi.", "a\xffb\u200bc", `Basic a="`, "\u2028"} {
		f.Add(text, "abcdefghijklmnop", 3, 5)
	}
	f.Fuzz(func(t *testing.T, text, secret string, at, times int) {
		if len(secret) > 200 {
			return
		}
		at = max(0, at) % (len(text) + 1)
		got := redact.Text(text[:at]+strings.Repeat(secret, max(0, times)%50)+text[at:], secret)
		if len(got) > 520 || !utf8.ValidString(got) || strings.TrimSpace(got) != got && len(got) < 500 {
			t.Fatalf("%q", got)
		}
		for _, r := range got {
			if !unicode.IsPrint(r) {
				t.Fatalf("%q in %q", r, got)
			}
		}
		if len(secret) >= 8 && strings.Contains(got, secret) && !strings.Contains("[redacted]", secret) {
			t.Fatalf("%q is left in %q", secret, got)
		}
	})
}
