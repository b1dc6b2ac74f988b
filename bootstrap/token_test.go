package bootstrap_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	tokenutil "k8s.io/cluster-bootstrap/token/util"

	"github.com/workloadid/workloadid/bootstrap"
)

const wellKnown = "abc123.0123456789abcdef"

func parse(t testing.TB, s string) bootstrap.Token {
	t.Helper()
	token, err := bootstrap.ParseToken(s)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestTokens(t *testing.T) {
	token := parse(t, wellKnown)
	if token.ID() != "abc123" || token.Reveal() != wellKnown || token.IsZero() {
		t.Errorf("got %v", token)
	}
	for _, bad := range []string{"", ".", "abc123", "abc123.", "abc123.0123456789abcde", "abc123.0123456789abcdef0",
		"ABC123.0123456789abcdef",
		"abc123.0123456789ABCDEF", "abc123:0123456789abcdef", "abc12.0123456789abcdef", wellKnown + "\n", " " + wellKnown,
		"abc123.0123456789abcdeé", "abc123.0123456789.bcdef"} {
		if _, err := bootstrap.ParseToken(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		} else if len(bad) > 10 && strings.Contains(err.Error(), bad[7:]) {
			t.Errorf("the error repeats the secret: %v", err)
		}
	}
	seen := map[string]bool{}
	for range 100 {
		generated, err := bootstrap.GenerateToken()
		if err != nil || !tokenutil.IsValidBootstrapToken(generated.Reveal()) || seen[generated.Reveal()] {
			t.Fatalf("generated %v, %v", generated, err)
		}
		seen[generated.Reveal()] = true
	}
	encoded, err := json.Marshal(map[string]any{"t": token, "p": &token})
	printed := fmt.Sprintf("%v %+v %#v %s %q %x", token, &token, struct{ T bootstrap.Token }{token}, token, token, token) +
		string(encoded)
	if err != nil || strings.Contains(printed, "0123456789") ||
		strings.Contains(printed, fmt.Sprintf("%x", "0123456789abcdef")) {
		t.Errorf("the secret shows: %s", printed)
	}
	if !token.Equal(parse(t, wellKnown)) || token.Equal(bootstrap.Token{}) {
		t.Error("Equal")
	}
}

func TestTokenUnmarshalText(t *testing.T) {
	var config struct{ Token bootstrap.Token }
	if err := json.Unmarshal([]byte(`{"token":"`+wellKnown+`"}`), &config); err != nil ||
		config.Token.Reveal() != wellKnown {
		t.Fatalf("got %v, %v", config, err)
	}
	redacted, err := config.Token.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"redacted": string(redacted), "empty": "",
		"upper case": "XYZ789.FEDCBA9876543210", "no dot": "xyz789fedcba9876543210"} {
		t.Run(name, func(t *testing.T) {
			err := config.Token.UnmarshalText([]byte(text))
			if err == nil || strings.Contains(strings.ToLower(err.Error()), "fedcba9876543210") ||
				config.Token.Reveal() != wellKnown {
				t.Errorf("got %v, %v", config, err)
			}
		})
	}
}

func FuzzToken(f *testing.F) {
	f.Add(wellKnown)
	f.Add("ABC123.0123456789abcdef")
	f.Fuzz(func(t *testing.T, s string) {
		if _, err := bootstrap.ParseToken(s); (err == nil) != tokenutil.IsValidBootstrapToken(s) {
			t.Errorf("%q: %v, Kubernetes says %t", s, err, tokenutil.IsValidBootstrapToken(s))
		}
	})
}
