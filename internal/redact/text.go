package redact

import (
	"cmp"
	"encoding/base64"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxText bounds the message of a service, in bytes.
	maxText = 300
	// maxHead is how much of the beginning of a longer message is kept, in
	// bytes. Some libraries begin with 200 bytes that say the same for each
	// cause.
	maxHead = 120
	// maxLine bounds a message that this module or a provider composes around
	// the message of a service, in bytes.
	maxLine = 1 << 10
	// maxSearched bounds how much of a message is searched for unknown
	// credentials, in bytes. The rest is never shown.
	maxSearched = 8 << 10
	// minSecret is the length of the shortest form of a secret that is
	// replaced, in bytes. Shorter ones occur in ordinary text, where the gap
	// would tell them.
	minSecret = 8
	// ellipsis ends a text that was cut.
	ellipsis = "…"
)

// Text makes the message or the code of a service fit for an error: without
// secrets, one line, printable, 300 bytes. A longer one keeps its beginning and
// its end. Beyond 8 KiB it keeps its beginning, because the end is not searched
// for credentials.
func Text(message string, secrets ...string) string {
	text := line(message, secrets)
	if len(text) <= maxText || len(message) > maxSearched {
		return strings.Clone(cut(text, maxText)) // the message may be large
	}
	end := len(text) - (maxText - maxHead)
	for !utf8.RuneStart(text[end]) {
		end++
	}
	return cut(text, maxHead) + text[end:]
}

// Line makes a whole message fit for an error, a condition or an Event, which
// may quote a service: without secrets, one line, printable, at most 1 KiB.
func Line(message string, secrets ...string) string {
	text, most := line(message, secrets), maxLine
	if len(text) > maxLine {
		most -= len(ellipsis)
	}
	return cut(text, most)
}

// Clean replaces what the package promises to replace, and leaves everything
// else as it is.
func Clean(text string, secrets ...string) string { return withoutLogins(without(text, secrets)) }

// line is Clean on one line. Blanks that replace unprintable characters can
// complete a secret, which is replaced as well.
func line(text string, secrets []string) string {
	text = without(text, secrets)
	text = withoutLogins(text[:min(len(text), maxSearched)])
	if plain := strings.Map(printable, text); plain != text {
		text = Clean(plain, secrets...)
	}
	return strings.TrimSpace(text)
}

func printable(r rune) rune {
	if r == utf8.RuneError || !unicode.IsPrint(r) {
		return ' '
	}
	return r
}

// without replaces the longest secret first, because it may contain another
// one.
func without(text string, secrets []string) string {
	secrets = slices.Clone(secrets)
	slices.SortStableFunc(secrets, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	for _, secret := range secrets {
		text = withoutOne(text, secret)
	}
	return text
}

func withoutOne(text, secret string) string {
	for _, encode := range []func(string) string{
		strings.Clone, url.QueryEscape, url.PathEscape, lower(url.QueryEscape), lower(url.PathEscape),
		in(base64.StdEncoding), in(base64.URLEncoding), in(base64.RawStdEncoding), in(base64.RawURLEncoding),
	} {
		if len(secret) > len(text) { // no form is shorter
			break
		}
		if form := encode(secret); len(form) >= minSecret {
			text = strings.ReplaceAll(text, form, mark)
		}
	}
	return text
}

func in(encoding *base64.Encoding) func(string) string {
	return func(s string) string { return encoding.EncodeToString([]byte(s)) }
}

// lower writes escapes in lower case, as some servers do.
func lower(escape func(string) string) func(string) string {
	return func(s string) string { return escaped.ReplaceAllStringFunc(escape(s), strings.ToLower) }
}

var (
	// escaped is a byte as net/url escapes it.
	escaped = regexp.MustCompile(`%[0-9A-F]{2}`)
	// login is the content of an Authorization header (RFC 7617, RFC 6750).
	// Words that follow a scheme in a sentence are shorter.
	login = regexp.MustCompile(`(?i)(bearer|basic)\s+[\w.~+/=-]{16,}`)
	// jwt is the compact form of a JWT (RFC 7519). Every header begins with {"
	// in base64.
	jwt = regexp.MustCompile(`eyJ[\w-]{8,}\.[\w-]{8,}(\.[\w-]*)*`)
)

func withoutLogins(text string) string {
	return jwt.ReplaceAllString(login.ReplaceAllString(text, "$1 "+mark), mark)
}

// cut shortens a text between two characters.
func cut(text string, most int) string {
	if len(text) <= most {
		return strings.Clone(text) // a part would keep the whole answer of a service
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + ellipsis
}
