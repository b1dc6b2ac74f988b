package redact_test

import (
	"encoding/base64"
	"encoding/hex"
	"html"
	"math/rand/v2"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/workloadid/workloadid/internal/redact"
)

var (
	ofBase64  = regexp.MustCompile(`[\w+/-]+`)
	ofHex     = regexp.MustCompile(`[[:xdigit:]]+`)
	entities  = regexp.MustCompile(`&#?\w+;`)
	percents  = regexp.MustCompile(`%[[:xdigit:]]{2}`)
	inStrings = regexp.MustCompile(`\\(u[[:xdigit:]]{4}|["'\\/nrt])`)
)

// undone returns what one reads who undoes one encoding, each alone and with the standard library. joined says that it was blanks.
func undone(text string) (plain []string, joined string) {
	for offset := range 4 {
		plain = append(plain, ofBase64.ReplaceAllStringFunc(text, func(run string) string {
			run = strings.NewReplacer("-", "+", "_", "/").Replace(run[min(offset, len(run)):])
			if len(run)%4 == 1 {
				run = run[:len(run)-1]
			}
			bytes, _ := base64.RawStdEncoding.DecodeString(run)
			return "\x00" + string(bytes) + "\x00"
		}))
	}
	for offset := range 2 {
		plain = append(plain, ofHex.ReplaceAllStringFunc(text, func(run string) string {
			run = run[min(offset, len(run)):]
			bytes, _ := hex.DecodeString(run[:len(run)/2*2])
			return "\x00" + string(bytes) + "\x00"
		}))
	}
	plain = append(plain, entities.ReplaceAllStringFunc(text, html.UnescapeString), percents.ReplaceAllStringFunc(text, func(one string) string {
		plain, _ := url.PathUnescape(one)
		return plain
	}), inStrings.ReplaceAllStringFunc(text, func(one string) string {
		if plain, _, _, err := strconv.UnquoteChar(one, one[1]); err == nil {
			return string(plain)
		}
		return one[1:]
	}))
	return plain, strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, text)
}

// holds reports whether a text, or what it encodes up to so many times, has a part of a secret.
func holds(text, secret string, joined bool, times int) bool {
	size := 16
	if len(secret) < 32 && !joined {
		size = 8
	}
	for i := 0; i+size <= len(secret); i++ {
		if strings.Contains(text, secret[i:i+size]) {
			return true
		}
	}
	if times == 0 {
		return false
	}
	plain, together := undone(text)
	for _, other := range plain {
		if other != text && holds(other, secret, joined, times-1) {
			return true
		}
	}
	return together != text && holds(together, secret, true, times-1)
}

// inLines breaks a text between letters.
func inLines(text string, width int, by string) string {
	var b strings.Builder
	for i, r := range []rune(text) {
		if i > 0 && i%width == 0 {
			b.WriteString(by)
		}
		b.WriteRune(r)
	}
	return b.String()
}

// letters are those of secrets: those that encodings treat in their own ways are frequent, except for those that begin escapes.
const letters = `ABCDEFGHabcdefgh01234567jklmnopqrstuvABCDEFGHabcdefgh01234567jklmnopqrstuv+/-_=.<>&"'@~äß`

func word(r *rand.Rand, length int) string {
	var b strings.Builder
	for all := []rune(letters); b.Len() < length; {
		b.WriteRune(all[r.IntN(len(all))])
	}
	return b.String()
}

// What is left has no part of a secret: a reference that is slow and simple looks for them.
func TestScrubberLeavesNoPart(t *testing.T) {
	ways := []func(r *rand.Rand, s string) string{
		func(_ *rand.Rand, s string) string { return s },
		func(r *rand.Rand, s string) string { return base64.StdEncoding.EncodeToString([]byte(s[r.IntN(4):])) },
		func(r *rand.Rand, s string) string {
			return base64.RawURLEncoding.EncodeToString([]byte(word(r, 1) + s))
		},
		func(_ *rand.Rand, s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) },
		func(_ *rand.Rand, s string) string { return url.PathEscape(s) },
		func(_ *rand.Rand, s string) string { return inJSON(t, s) },
		func(_ *rand.Rand, s string) string { return html.EscapeString(s) },
		func(r *rand.Rand, s string) string {
			return inLines(s, 1+r.IntN(20), []string{" ", "\n", "\r\n\t"}[r.IntN(3)])
		},
	}
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same in each run
	for range 800 {
		secrets := []string{word(r, 8+r.IntN(40)), word(r, 8+r.IntN(40))}
		s := &redact.Scrubber{}
		text := word(r, r.IntN(12))
		for _, secret := range secrets {
			s.Add(secret)
			text += ways[r.IntN(len(ways))](r, ways[r.IntN(len(ways))](r, secret)) + word(r, r.IntN(12))
		}
		got := s.Clean(text)
		for left := range strings.SplitSeq(got, "[redacted]") {
			for _, secret := range secrets {
				if holds(left, secret, false, 2) {
					t.Errorf("%q of %q is left in %q of %q", left, secret, got, text)
				}
			}
		}
	}
}
