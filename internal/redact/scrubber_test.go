package redact_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"math/rand/v2"
	"net/url"
	"runtime"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/redact"
)

func percented(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "%%%02x", s[i])
	}
	return b.String()
}

func inUnicode(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, `\u%04x`, s[i])
	}
	return b.String()
}

func broken(s string, width int, by string) string {
	var parts []string
	for ; len(s) > width; s = s[width:] {
		parts = append(parts, s[:width])
	}
	return strings.Join(append(parts, s), by)
}

func inJSON(t *testing.T, s string) string {
	t.Helper()
	content, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// encodings are what a server may make of what it was sent.
func encodings(t *testing.T) map[string]func(string) string {
	t.Helper()
	b64 := base64.StdEncoding.EncodeToString
	all := map[string]func(string) string{
		"cut":           func(s string) string { return s[:len(s)-1] },
		"percent":       percented,
		"query":         func(s string) string { return url.QueryEscape(s) },
		"lower query":   func(s string) string { return strings.ToLower(url.QueryEscape(s[:1])) + percented(s[1:]) },
		"percent twice": func(s string) string { return url.QueryEscape(percented(s)) },
		"JSON":          func(s string) string { return inJSON(t, s) },
		"JSON in JSON":  func(s string) string { return inJSON(t, inJSON(t, s)) },
		"slashes":       func(s string) string { return strings.ReplaceAll(s, "/", `\/`) },
		"unicode":       inUnicode,
		"quoted":        func(s string) string { return fmt.Sprintf("%q", s) },
		"HTML":          func(s string) string { return html.EscapeString(s) },
		"HTML numbers": func(s string) string {
			return strings.NewReplacer("/", "&#x2F;", "+", "&#43;", "=", "&#61;").Replace(s)
		},
		"hexadecimal":       func(s string) string { return hex.EncodeToString([]byte(s)) },
		"HEXADECIMAL":       func(s string) string { return "0" + strings.ToUpper(hex.EncodeToString([]byte(s))) },
		"base64 in lines":   func(s string) string { return broken(b64([]byte("user:"+s)), 76, "\n") },
		"base64 in URL":     func(s string) string { return url.QueryEscape(b64([]byte(s))) },
		"base64 twice":      func(s string) string { return b64([]byte(b64([]byte(s)))) },
		"JSON in base64":    func(s string) string { return b64([]byte(`{"token":` + inJSON(t, s) + `}`)) },
		"percent in base64": func(s string) string { return b64([]byte(percented(s))) },
	}
	for n := range 4 {
		before := strings.Repeat("x", n)
		all[fmt.Sprintf("base64 after %d", n)] = func(s string) string { return b64([]byte(before + s)) }
		all[fmt.Sprintf("base64url after %d", n)] = func(s string) string { return before + base64.RawURLEncoding.EncodeToString([]byte(s)) }
	}
	return all
}

func TestScrubberUndoesEncodings(t *testing.T) {
	for _, secret := range []string{
		"wJalrXUtnFEMI/K7MDENG/bPxRfi+YEXAMPLEKEY=", "hunter2/pass+1<&>\"", "p\"a/s's\\w<o>r&d-and-more+of=it-for-40-bytes",
		"eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJlLW9mLXNvbWUtbGVuZ3Ro",
	} {
		s := &redact.Scrubber{}
		s.Add(secret)
		for name, encode := range encodings(t) {
			encoded := encode(secret)
			text := "you sent: " + encoded + "; to us"
			got := s.Clean(text)
			if !strings.HasPrefix(got, "you sent: ") || !strings.HasSuffix(got, "; to us") || !strings.Contains(got, "[redacted]") {
				t.Errorf("%s of %s: %s", name, secret, got)
			}
			rest := strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(got, "you sent: "), "; to us"), "[redacted]", "")
			for i := 0; i+8 <= len(encoded); i++ {
				if strings.Contains(rest, encoded[i:i+8]) && !strings.Contains(name, "JSON in") && !strings.Contains(name, "lines") {
					t.Errorf("%s of %s: %s is left", name, secret, rest)
					break
				}
			}
		}
	}
}

// What is long is found in pieces too, whatever blanks stand between them.
func TestScrubberJoinsLines(t *testing.T) {
	for _, secret := range []string{"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "x7k2qp.m4w9zr1tb6yv3hn8"} {
		s := &redact.Scrubber{}
		s.Add(secret)
		for _, width := range []int{1, 2, 7} {
			for _, by := range []string{
				"\n", "\r\n  ", " ", "\t", "\x00", "\u200b", "\ufeff", "\u00ad", "\u00a0", "\u034f", "\ufe0f", "\xff", `\n`, "%0A", "&#x0000000a;",
			} {
				text := "a " + broken(secret, width, by) + " b"
				if got := s.Clean(text); got != "a [redacted] b" {
					t.Errorf("%d, %q: %s", width, by, got)
				}
				if got := redact.Text(text, secret); got != "a [redacted] b" {
					t.Errorf("%d, %q in a message: %s", width, by, got)
				}
			}
		}
	}
}

// Ordinary text stays, and so does what is too short to be told from it.
func TestScrubberLeavesText(t *testing.T) {
	s := &redact.Scrubber{}
	s.Add("short12")
	s.Add("hunter2-pass1")
	s.AddWhole("joe:pa55")
	const text = "the role arn:aws:iam::123456789012:role/tenant-a (short12) of joe is not known: %zz \\u00e4 &amp; 100% &#; \\q " +
		"sha256 dc83ccdd5a232702a7fb0e177f562f9f73976520b4feae89f79cb74b406968b0 hunter2\n\tpass1 äöü \xff"
	if got := s.Clean(text); got != text {
		t.Errorf("%q", got)
	}
	s.AddWhole("a man:pa55")
	if got := s.Clean("(a man:pa55), a\nma\u00a0n:p\ta55"); got != "([redacted]), [redacted]" {
		t.Errorf("%q", got)
	}
	if got := s.Clean("joe:pa55, joe%3Apa55"); got != "[redacted], [redacted]" {
		t.Errorf("%q", got)
	}
	if got := (&redact.Scrubber{}).Clean(text); got != text {
		t.Errorf("%q", got)
	}
}

// Where there is nothing to be found, nothing is looked for.
func TestScrubberOfNothing(t *testing.T) {
	s := &redact.Scrubber{}
	s.Add("")
	s.Add("a b&c=d") // whatever its encodings are
	s.AddWhole("")
	text := strings.Repeat("a+b%26c%3Dd or a%20b&c=d; ", 300)
	if allocated := testing.AllocsPerRun(5, func() {
		if s.Clean(text) != text {
			t.Error("something is missing")
		}
	}); allocated > 0 {
		t.Errorf("%v allocations", allocated)
	}
}

// A message that repeats nothing is not looked through thoroughly, and none that repeats a part of a secret is let through.
func TestTextFindsParts(t *testing.T) {
	const secret = "wJalrXUtnFEMI/K7MDENG/bPxRfi+YEXAMPLEKEY="
	for from := range len(secret) - 16 {
		for before := range 10 {
			if got := redact.Text(strings.Repeat("x ", before)+secret[from:from+16]+" z", secret); strings.Contains(got, secret[from:from+9]) {
				t.Errorf("after %d: %s", before, got)
			}
		}
	}
}

// What a library's error repeats goes the same way, also if it is short.
func TestTextUndoesEncodings(t *testing.T) {
	for _, secret := range []string{"wJalrXUtnFEMI/K7MDENG/bPxRfi+YEXAMPLEKEY=", "x7k2qp.m4w9zr1tb6yv3hn8", "hunter2/pass1"} {
		for name, encode := range encodings(t) {
			encoded := encode(secret)
			if got := redact.Text("x: "+encoded, secret); strings.Contains(got, encoded) || !strings.Contains(got, "[redacted]") {
				t.Errorf("%s of %s: %s", name, secret, got)
			}
		}
	}
}

// Secrets are taken out of the whole message, however much of it they are.
func TestTextLooksFurther(t *testing.T) {
	secret := strings.Repeat("wJalrXUtnFEMI/K7MDENG/bPxRfi+YEXAMPLEKEY=", 100)
	if got := redact.Text("a "+secret+" "+percented(secret[:1000])+" b", secret); got != "a [redacted] [redacted] b" {
		t.Errorf("%s", got)
	}
}

// No message makes much work, though a token may be long: memory is measured, which does not depend on the machine.
func TestTextIsCheap(t *testing.T) {
	random := make([]byte, 8<<10)
	_, _ = rand.NewChaCha8([32]byte{}).Read(random)
	b64 := base64.StdEncoding.EncodeToString
	secret := b64(random)
	for name, message := range map[string]string{
		"base64":                b64(random[1:]),
		"base64 in base64":      "% " + b64([]byte(b64(random[1:]))),
		"base64 in hexadecimal": "% " + hex.EncodeToString([]byte(b64(random[1:]))),
		"hexadecimal":           "% " + strings.Repeat("34313432", 1<<10),
		"escapes":               strings.Repeat("%2541", 2<<10),
		"backslashes":           strings.Repeat(`\`, 8<<10),
		"entities":              strings.Repeat("&a;", 4<<10),
		"words":                 strings.Repeat("abc def ", 1<<10),
		"starts of secrets":     strings.Repeat(secret[100:108]+"?", 1<<10),
		"the secret":            secret,
		"the secret in pieces":  "% " + broken(secret, 15, ","),
		"the secret in blanks":  broken(secret, 1, " "),
	} {
		const rounds, most = 4, 2 << 20
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range rounds {
			redact.Text(message, secret)
		}
		runtime.ReadMemStats(&after)
		if each := (after.TotalAlloc - before.TotalAlloc) / rounds; each > most {
			t.Errorf("%s: %d KiB", name, each>>10)
		}
	}
}

func FuzzScrubber(f *testing.F) {
	for _, text := range []string{"%41%", `\u004`, "&#x41;", "YWJjZGVmZ2hpamtsbW5vcA", "61626364656667", "a b c", `\101\1`, "&amp;#65;", "\xff"} {
		f.Add(text, "abcdefghijklmnop", 3)
	}
	f.Fuzz(func(t *testing.T, text, secret string, at int) {
		if len(text) > 2000 || len(secret) > 200 {
			return
		}
		s := &redact.Scrubber{}
		s.Add(secret)
		got := s.Clean(text)
		if strings.Count(got, "[redacted]") == strings.Count(text, "[redacted]") && got != text {
			t.Fatalf("%q became %q", text, got)
		}
		if len(secret) < 8 || len(text) == 0 {
			return
		}
		at = max(0, at) % len(text)
		if got := s.Clean(text[:at] + secret + text[at:]); strings.Contains(got, secret) && !strings.Contains("[redacted]", secret) {
			t.Fatalf("%q is left in %q", secret, got)
		}
	})
}
