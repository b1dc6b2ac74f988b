package bootstrap_test

import (
	"strings"
	"testing"

	"github.com/workloadid/workloadid/bootstrap"
)

func TestPins(t *testing.T) {
	digits := strings.Repeat("0aF9", 16)
	for _, s := range []string{"sha256:" + digits, "SHA256:" + strings.ToUpper(digits)} {
		if p, err := bootstrap.ParsePins(s); err != nil || p[0].String() != "sha256:"+strings.ToLower(digits) {
			t.Errorf("%q: %v, %v", s, p, err)
		}
	}
	for _, s := range []string{"", "sha256:", digits, "sha1:" + digits, "sha256:" + digits[1:], "sha256:" + digits + "0",
		"sha256:" + digits[1:] + "g", "sha256 " + digits} {
		if _, err := bootstrap.ParsePins(s); err == nil {
			t.Errorf("%q was accepted", s)
		}
	}
	for _, token := range []string{"abcdef.0123456789abcdef", " abcdef.0123456789abcdef'"} {
		if _, err := bootstrap.ParsePins(token); err == nil || strings.Contains(err.Error(), "0123456789abcdef") {
			t.Errorf("a token in place of a pin: %v", err)
		}
	}
}

func FuzzPin(f *testing.F) {
	f.Add("sha256:" + strings.Repeat("0aF9", 16))
	f.Add("sha1:00")
	f.Fuzz(func(t *testing.T, s string) {
		if p, err := bootstrap.ParsePins(s); err == nil && !strings.EqualFold(p[0].String(), s) {
			t.Errorf("%q comes back as %s", s, p)
		}
	})
}
