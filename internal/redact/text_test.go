package redact_test

import (
	"encoding/base64"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/workloadid/workloadid/internal/redact"
)

const secretJWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl"

func TestText(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"plain text":                 {"Incorrect token audience", "Incorrect token audience"},
		"known JWT":                  {"bad token " + secretJWT + "!", "bad token [redacted]!"},
		"unknown JWT":                {"saw eyJhbGciOiJub25lIn0.eyJzdWIiOiJiIn0.", "saw [redacted]"},
		"unknown JWT after a word":   {"id_token_eyJhbGciOiJub25lIn0.eyJzdWIiOiJiIn0.", "id_token_[redacted]"},
		"JWT cut off in its payload": {"saw eyJhbGciOiJub25lIn0.eyJzdWIiOi…", "saw [redacted]…"},
		"unknown bearer token": {"you sent Bearer exec-secret-0123456789 to us",
			"you sent Bearer [redacted] to us"},
		"bearer token after a word": {"xBearer exec-secret-0123456789", "xBearer [redacted]"},
		"basic login in JSON": {`{"authorization":"basic am9lOmh1bnRlcjItcGFzczE="}`,
			`{"authorization":"basic [redacted]"}`},
		"bearer JWT": {"Bearer " + secretJWT + ", which", "Bearer [redacted], which"},
		"words that follow a scheme": {"Basic authentication is off, bearer tokens expired",
			"Basic authentication is off, bearer tokens expired"},
		"challenge of a registry": {`Bearer realm="https://h/t",service="s"`,
			`Bearer realm="https://h/t",service="s"`},
		"line breaks become blanks":      {"a\r\nb\x00c", "a  b c"},
		"terminal escapes become blanks": {"\x1b[31mred", "[31mred"},
		"invalid UTF-8 becomes blanks":   {"a\xffb", "a b"},
		"300 bytes stay":                 {strings.Repeat("x", 300), strings.Repeat("x", 300)},
		"301 bytes are cut": {strings.Repeat("x", 301),
			strings.Repeat("x", 120) + "…" + strings.Repeat("x", 180)},
		"the end of a long text stays": {strings.Repeat("boilerplate ", 30) + "the cause",
			strings.Repeat("boilerplate ", 10) + "…" + (strings.Repeat("boilerplate ", 30) + "the cause")[189:]},
		"a text beyond the search is cut": {strings.Repeat("x", 9<<10) + "Bearer exec-secret-0123456789",
			strings.Repeat("x", 300) + "…"},
		"the cut lies between characters": {"x" + strings.Repeat("ä", 200),
			"x" + strings.Repeat("ä", 59) + "…" + strings.Repeat("ä", 90)},
		"secrets vanish before the cut": {strings.Repeat("x", 290) + secretJWT, strings.Repeat("x", 290) + "[redacted]"},
		"a secret longer than the search": {strings.Repeat(secretJWT+" ", 500) + "end",
			strings.TrimSuffix(strings.Repeat("[redacted] ", 28)[:300], " ") + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := redact.Text(tc.in, secretJWT); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestLineKeepsWholeMessages(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"1 KiB stays":       {strings.Repeat("x", 1<<10), strings.Repeat("x", 1<<10)},
		"more is cut":       {strings.Repeat("x", 1<<20), strings.Repeat("x", 1<<10-len("…")) + "…"},
		"one line":          {"a\nb", "a b"},
		"without a secret":  {"a\n" + secretJWT, "a [redacted]"},
		"without any login": {"Basic am9lOmh1bnRlcjItcGFzczE=", "Basic [redacted]"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := redact.Line(tc.in, secretJWT); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// encodings are the three that the package promises to find.
func encodings() map[string]func(string) string {
	in := func(e *base64.Encoding) func(string) string {
		return func(s string) string { return e.EncodeToString([]byte(s)) }
	}
	percent := func(s string) string {
		parts := strings.Split(url.QueryEscape(s), "%")
		for i, part := range parts[1:] {
			parts[i+1] = strings.ToLower(part[:2]) + part[2:]
		}
		return strings.Join(parts, "%")
	}
	return map[string]func(string) string{
		"raw":                  strings.Clone,
		"query-escaped":        url.QueryEscape,
		"path-escaped":         url.PathEscape,
		"escaped in lowercase": percent,
		"base64":               in(base64.StdEncoding),
		"base64 unpadded":      in(base64.RawStdEncoding),
		"base64url":            in(base64.URLEncoding),
		"base64url unpadded":   in(base64.RawURLEncoding),
	}
}

func TestSecretsAreReplacedInEachEncoding(t *testing.T) {
	secrets := map[string]string{
		"secret key":      "wJalrXUtnFEMI/K7MDENG/bPxRfi+YEXAMPLEKEY=",
		"bootstrap token": "x7k2qp.m4w9zr1tb6yv3hn8",
		"password":        "hunter2/pass+1<:",
		"phrase":          "correct horse battery staple",
		"other letters":   "пароль-секретный",
		"opaque bytes":    "\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8\xf7",
		"JWT":             secretJWT,
	}
	for secretName, secret := range secrets {
		for name, encode := range encodings() {
			t.Run(secretName+" "+name, func(t *testing.T) {
				text := "you sent: " + encode(secret) + "; to us"
				for function, redacted := range map[string]string{
					"Text": redact.Text(text, "another secret", secret), "Line": redact.Line(text, secret),
					"Clean": redact.Clean(text, secret, "another secret"),
				} {
					if redacted != "you sent: [redacted]; to us" {
						t.Errorf("%s: %q", function, redacted)
					}
				}
			})
		}
	}
}

func TestClean(t *testing.T) {
	for name, tc := range map[string]struct {
		in      string
		secrets []string
		want    string
	}{
		"everything else stays": {"a\tb\n \x1b\xff " + strings.Repeat("x", 2<<10), []string{"hunter2-pass1"},
			"a\tb\n \x1b\xff " + strings.Repeat("x", 2<<10)},
		"each occurrence": {"hunter2-pass1, hunter2-pass1", []string{"hunter2-pass1"},
			"[redacted], [redacted]"},
		"a pair and the password in it": {"joe:hunter2-pass1 hunter2-pass1", []string{"hunter2-pass1", "joe:hunter2-pass1"},
			"[redacted] [redacted]"},
		"no secret":                       {"text", []string{"", "short12"}, "text"},
		"a short secret stays":            {"the role a", []string{"role", "a"}, "the role a"},
		"an encoding of 8 bytes vanishes": {"cm9sZTE2 role16", []string{"role16"}, "[redacted] role16"},
		"logins without any secret":       {"Bearer 0123456789abcdef", nil, "Bearer [redacted]"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := redact.Clean(tc.in, tc.secrets...); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestBlanksThatCompleteASecretAreNoWayAround(t *testing.T) {
	if got := redact.Text("a hunter2\npass1 b", "hunter2 pass1"); got != "a [redacted] b" {
		t.Errorf("got %q", got)
	}
}

// A quadratic search takes minutes for 1 MiB. The limit is far above what a
// slow machine needs.
func TestHostileTextTakesLinearTime(t *testing.T) {
	const size, limit = 1 << 20, time.Minute
	same := strings.Repeat("a", 4<<10)
	for name, unit := range map[string]string{
		"almost the secret": same[:len(same)-1] + "b",
		"the secret":        same,
		"one letter":        "a",
		"schemes":           "Bearer ",
		"blanks":            "Basic\t\t\t\t\t\t",
		"JWT headers":       "eyJhbGciOi.",
		"escapes":           "%2541",
		"no characters":     "\xff",
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Repeat(unit, size/len(unit))
			start := time.Now()
			for _, redacted := range []string{redact.Clean(text, same), redact.Text(text, same)} {
				if strings.Contains(redacted, same) {
					t.Error("the secret is left")
				}
			}
			if took := time.Since(start); took > limit {
				t.Errorf("took %s", took)
			}
		})
	}
}

func FuzzText(f *testing.F) {
	for _, text := range []string{"%41%", `\u004`, "&#x41;&", "bearer\t", "eyJhbGciOi.", "a\xffb\u200bc", `Basic a="`,
		"\u2028", "hunter2\npass1"} {
		f.Add(text, "abcdefghijklmnop", 3, 5)
		f.Add(text, "hunter2 pass1", 3, 5)
	}
	f.Fuzz(func(t *testing.T, text, secret string, at, times int) {
		if len(secret) > 200 || strings.ContainsAny(secret, "[]…") || strings.Contains("redacted", secret) {
			return // the mark itself could complete such a secret
		}
		at = max(0, at) % (len(text) + 1)
		for name, encode := range encodings() {
			encoded := encode(secret)
			hostile := text[:at] + strings.Repeat(encoded, max(0, times)%50) + text[at:]
			got := redact.Text(hostile, secret)
			checkLine(t, got)
			for _, redacted := range []string{got, redact.Line(hostile, secret), redact.Clean(hostile, secret)} {
				if len(encoded) >= 8 && strings.Contains(redacted, encoded) {
					t.Fatalf("%s: %q is left in %q", name, encoded, redacted)
				}
			}
		}
	})
}

// checkLine fails unless a text is one bounded, printable line.
func checkLine(t *testing.T, got string) {
	t.Helper()
	if len(got) > 310 || !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool {
		return !unicode.IsPrint(r)
	}) {
		t.Fatalf("%q", got)
	}
}
