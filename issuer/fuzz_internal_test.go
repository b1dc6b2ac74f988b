package issuer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"
)

const (
	fuzzKey    = `{"use":"sig","kty":"EC","kid":"a","crv":"P-256","alg":"ES256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}`
	fuzzIssuer = "https://oidc.example.com"
)

// A key set that is accepted is published in one form, with public members
// only.
func FuzzKeySet(f *testing.F) {
	f.Add([]byte(`{"keys":[` + fuzzKey + `]}`))
	f.Add([]byte(`{"keys":[{"kty":"EC","kid":"a","crv":"P-256","d":"AA","x":"AA","y":"AA"}]}`))
	f.Add([]byte(`{"keys":[null,{}]}`))
	f.Add([]byte(`{"keys":[{"kty":"RSA","kid":"r","n":"AQAB","e":"AQAB","x5c":["AA"]}]}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		set, err := parseKeySet(content)
		if err != nil {
			return
		}
		checkPublished(t, set)
	})
}

func marshal(set keySet) ([]byte, error) { return json.Marshal(map[string]keySet{"keys": set}) }

func checkPublished(t *testing.T, set keySet) {
	t.Helper()
	published, err := marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	again, err := parseKeySet(published)
	if err != nil {
		t.Fatalf("%s: %v", published, err)
	}
	if second, err := marshal(again); err != nil || !bytes.Equal(published, second) {
		t.Fatalf("%s becomes %s: %v", published, second, err)
	}
	var members struct{ Keys []map[string]any }
	if err := json.Unmarshal(published, &members); err != nil {
		t.Fatal(err)
	}
	allowed := []string{"use", "kty", "kid", "crv", "alg", "x", "y", "n", "e"}
	for _, key := range members.Keys {
		for name := range key {
			if !slices.Contains(allowed, name) {
				t.Fatalf("%s publishes %q", published, name)
			}
		}
	}
}

// A record that is accepted survives a look without losing a key too early or
// publishing one that is removed.
func FuzzRecord(f *testing.F) {
	f.Add(
		fmt.Appendf(nil,
			`{"version":1,"issuer":%q,"keys":[{"key":%s,"absence":{"seconds":7,"until":"2026-01-02T03:04:05Z"}}]}`, fuzzIssuer,
			fuzzKey))
	f.Add(fmt.Appendf(nil, `{"version":1,"issuer":%q,"keys":[{"key":%s,"removed":true}]}`, fuzzIssuer, fuzzKey))
	f.Add(fmt.Appendf(nil, `{"version":1,"issuer":%q,"keys":[{"key":null},{}]}`, fuzzIssuer))
	f.Add(fmt.Appendf(nil, `{"version":1,"issuer":%q}`, fuzzIssuer))
	now := time.Date(2026, 1, 2, 3, 5, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, content []byte) {
		r, err := parseRecord(content, fuzzIssuer)
		if err != nil || content == nil {
			return
		}
		after := r.look(nil, now, 24*time.Hour)
		for _, e := range r.Keys {
			i := after.index(e.Key.KeyID)
			switch {
			case i < 0 && (e.Removed || e.Absence == nil || e.Absence.total()+maxGap < 24*time.Hour):
				t.Fatalf("%s loses %q", content, e.Key.KeyID)
			case e.Removed && after.published().index(e.Key.KeyID) >= 0:
				t.Fatalf("%s publishes %q", content, e.Key.KeyID)
			}
		}
		checkPublished(t, after.published())
		written, err := json.Marshal(after)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseRecord(written, fuzzIssuer); err != nil {
			t.Fatalf("%s: %v", written, err)
		}
	})
}
