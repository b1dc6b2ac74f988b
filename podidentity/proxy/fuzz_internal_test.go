package proxy

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// Whatever the server answers, applications get four whole fields and an expiry
// with Z, or none.
func FuzzParseCredentials(f *testing.F) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for _, expires := range []string{"2026-01-02T04:04:05Z", "2026-01-02T05:04:05.5+01:00", "9999-12-31T23:59:59-23:00",
		"2026-01-02T03:05:05Z", ""} {
		f.Add([]byte(`{"AccessKeyId":"a","SecretAccessKey":"b","Token":"c<","Expiration":"` + expires + `"}`))
	}
	f.Add([]byte(`{"accesskeyid":"a","SecretAccessKey":"b","Token":"\ud800","Expiration":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := parseCredentials(body, now)
		if err != nil {
			return
		}
		var fields map[string]string
		if err := json.Unmarshal(c.body, &fields); err != nil || len(fields) != 4 {
			t.Fatalf("got %s, want an object of four texts: %v", c.body, err)
		}
		for name, value := range fields {
			if value == "" {
				t.Errorf("%s is empty in %s", name, c.body)
			}
		}
		expires, err := time.Parse("2006-01-02T15:04:05Z", fields["Expiration"])
		if err != nil || expires.Before(now.Add(margin)) || expires.After(now.Add(maxLifetime)) || !expires.Equal(c.expires) {
			t.Errorf("got %s at %s, want an expiry within %s to %s: %v", c.body, now, margin, maxLifetime, err)
		}
	})
}

func FuzzRefusal(f *testing.F) {
	f.Add(403, []byte(`{"Code":"NotBound","Message":"no IAMBinding"}`))
	f.Add(403, []byte(`{"Code":1}`))
	f.Add(503, []byte(strings.Repeat("{", 1000)))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		r := refusal(status, http.Header{}, body)
		if r.status != http.StatusServiceUnavailable &&
			(r.status != http.StatusForbidden || status != http.StatusForbidden) || r.Code == "" {
			t.Errorf("the answer %d %q becomes %+v, want 503, or 403 for 403, and a code", status, body, r)
		}
		if len(r.Code) > maxText || len(r.Message) > maxText || !utf8.ValidString(r.Code+r.Message) {
			t.Errorf("the answer %d %q becomes %+v, want at most %d bytes of UTF-8", status, body, r, maxText)
		}
	})
}
