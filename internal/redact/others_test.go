package redact_test

import (
	"encoding/base64"
	"net/url"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/redact"
)

// A secret need not be ASCII, and may hold blanks itself.
func TestScrubberJoinsOtherLetters(t *testing.T) {
	for _, secret := range []string{
		"pässwörter-für-größere-Übungen-sind-länger", "пароль-длинный-очень-секретный", "words\u00a0of a phrase that\u00a0is long",
	} {
		s := &redact.Scrubber{}
		s.Add(secret)
		for _, by := range []string{"\n", "\r\n  ", "\u200b", `\n`, "%0A"} {
			text := "a "
			for i, r := range []rune(secret) {
				if i > 0 && i%5 == 0 {
					text += by
				}
				text += string(r)
			}
			if got := s.Clean(text + " b"); got != "a [redacted] b" {
				t.Errorf("%q: %q", by, got)
			}
			if got := redact.Text(text+" b", secret); got != "a [redacted] b" {
				t.Errorf("%q in a message: %q", by, got)
			}
		}
	}
}

// What has lines is found in JSON as well, to its end.
func TestScrubberUndoesLineEnds(t *testing.T) {
	const secret = "k1:\tab\r\ncd\tef\nghi\tj\r\nkl\tmno\npq\tr\nst\tuv\nw"
	s := &redact.Scrubber{}
	s.Add(secret)
	for _, text := range []string{inJSON(t, secret), inJSON(t, inJSON(t, secret)), `"` + inUnicode(secret[:9]) + strings.Trim(inJSON(t, secret[9:]), `"`) + `"`} {
		if got := strings.Trim(s.Clean(text), `\"`); got != "[redacted]" {
			t.Errorf("%s: %s", text, got)
		}
	}
}

// What looks like an escape may be of the secret, and one may follow another.
func TestScrubberUndoesNextToEscapes(t *testing.T) {
	for secret, texts := range map[string][]string{
		`CORP\nick<R&D>`: {`CORP\nick&lt;R&amp;D&gt;`, `CORP\nick\u003cR\u0026D\u003e`, `CORP%5cnick%3cR%26D%3e`},
		`_q@D6tFfgb4act4%FBdvFkatj0H4D60v17G3DbnA`: {`_q@D6tFfgb4ac\r\n\tt4%FBdvFkatj0\r\n\tH4D60v17G3D\r\n\tbnA`},
		`1j&muoGe6kdr&crCBDkg;dEHfd&x`:             {`1j&m\x75oG&#x65;6kdr&cr\x43B\x44k&#x67;;dEH\x66d&\x78`, `1j&\x6d\x75&#x6f;G\x65\x36kdr&\u0063&#x72;C\x42\x44kg;dEHfd&x`},
	} {
		s := &redact.Scrubber{}
		s.Add(secret)
		whole := &redact.Scrubber{}
		whole.AddWhole(secret)
		for _, text := range texts {
			for _, got := range []string{s.Clean("a " + text + " b"), whole.Clean("a " + text + " b"), redact.Text("a "+text+" b", secret)} {
				if got != "a [redacted] b" {
					t.Errorf("%s: %s", text, got)
				}
			}
		}
	}
}

// A form encodes the blanks of a phrase with signs of addition.
func TestTextUndoesForms(t *testing.T) {
	for _, secret := range []string{"correct horse battery staple", "a phrase of many short words is no less of a secret than others are"} {
		if got := redact.Text("you sent password="+url.QueryEscape(secret), secret); got != "you sent password=[redacted]" {
			t.Errorf("%s", got)
		}
	}
}

// As YAML has it.
func TestTextJoinsIndentedLines(t *testing.T) {
	for _, secret := range []string{"wJalrXUtnFEMI/K7MDENG/bPxRfi+YEXAMPLEKEY=", "x7k2qp.m4w9zr1tb6yv3hn8"} {
		b64 := base64.StdEncoding.EncodeToString([]byte(secret))
		for _, by := range []string{"\n", "\n    ", "\r\n\t"} {
			if got := redact.Text("password: "+broken(b64, 19, by), secret); strings.TrimRight(got, "=") != "password: [redacted]" {
				t.Errorf("%q: %s", by, got)
			}
		}
	}
}
