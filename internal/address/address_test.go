package address_test

import (
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/address"
)

func TestParse(t *testing.T) {
	for name, tc := range map[string]struct {
		text    string
		allowed address.Part
		want    string // canonical
	}{
		"name":              {"https://A.example", 0, "a.example:443"},
		"port":              {"https://a.example:8443", 0, "a.example:8443"},
		"slash":             {"https://a.example/", 0, "a.example:443"},
		"IPv6":              {"https://[2001:DB8::1]", 0, "[2001:db8::1]:443"},
		"path":              {"https://a.example/b%2Fc", address.Path, "a.example:443"},
		"path and query":    {"https://a.example/b?c=d", address.Path | address.Query, "a.example:443"},
		"query alone":       {"https://a.example?c", address.Query, "a.example:443"},
		"IPv4, default":     {"https://192.0.2.1:443", 0, "192.0.2.1:443"},
		"one label, digits": {"https://1and1", 0, "1and1:443"},
	} {
		t.Run(name, func(t *testing.T) {
			u, err := address.Parse("endpoint", tc.text, tc.allowed)
			if err != nil {
				t.Fatal(err)
			}
			if got, ok := address.Canonical(u); !ok || got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// The error names the option and the problem, and repeats no secret.
func TestParseRefuses(t *testing.T) {
	const all = address.Path | address.Query
	for name, tc := range map[string]struct {
		text    string
		allowed address.Part
		want    string
	}{
		"empty":           {"", all, "https://"},
		"http":            {"http://a.example", all, "https://"},
		"capitals":        {"HTTPS://a.example", all, "https://"},
		"no scheme":       {"a.example", all, "https://"},
		"opaque":          {"https:a.example", all, "https://"},
		"path":            {"https://a.example/b", address.Query, "it holds a path"},
		"two slashes":     {"https://a.example//", 0, "it holds a path"},
		"query":           {"https://a.example?s3cret", address.Path, "it holds a query"},
		"question mark":   {"https://a.example/?", address.Path, "it holds a query"},
		"fragment":        {"https://a.example#s3cret", all, "it holds a fragment"},
		"empty fragment":  {"https://a.example#", all, "it holds a fragment"},
		"user":            {"https://s3cret@a.example", all, "it holds a user name"},
		"empty user":      {"https://@a.example", all, "it holds a user name"},
		"look-alike":      {"https://a.example:443@evil.example", all, "it holds a user name"},
		"backslash":       {`https://evil.example\@a.example`, all, "invalid characters"},
		"line":            {"https://a.example\n", all, "invalid characters"},
		"another script":  {"https://аexample", all, "invalid characters"},
		"percent":         {"https://a%2eexample", all, "not a URL"},
		"bare IPv6, port": {"https://2001:db8::19e:6443", all, "brackets"},
		"bare IPv6":       {"https://fd00::1/b", all, "brackets"},
		"bare IPv6, long": {"https://1:2:3:4:5:6:7:8:443", all, "brackets"},
		"no host":         {"https:///b", all, "no valid host"},
		"port alone":      {"https://:443", all, "no valid host"},
		"port missing":    {"https://a.example:", all, "no valid host or port"},
		"port 0":          {"https://a.example:0", all, "no valid host or port"},
		"port 0443":       {"https://a.example:0443", all, "no valid host or port"},
		"port 65536":      {"https://a.example:65536", all, "no valid host or port"},
		"final dot":       {"https://a.example.", all, "no valid host"},
		"underscore":      {"https://a_b.example", all, "no valid host"},
		"zone":            {"https://[fe80::1%25eth0]", all, "no valid host"},
		"unspecified":     {"https://0.0.0.0", all, "no valid host"},
		"unspecified, v6": {"https://[::]", all, "no valid host"},
		"long":            {"https://a.example/" + strings.Repeat("x", 2048), all, "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			u, err := address.Parse("token endpoint", tc.text, tc.allowed)
			if err == nil {
				t.Fatalf("accepted as %q", u.Host)
			}
			if text := err.Error(); !strings.HasPrefix(text, "the token endpoint ") || !strings.Contains(text, tc.want) ||
				strings.Contains(text, "s3cret") {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
