// Package redact keeps secrets out of everything that prints.
package redact

import (
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Secret holds a string that no printing, logging or encoding package gets to see, even where it sits in a field of
// a struct that is printed by reflection: there it shows as an address. The zero value is the empty string. A Secret is equal
// to its copies, for == and reflect.DeepEqual, and to no other, whatever it holds; compare what Reveal returns.
type Secret struct {
	held *held
}

// held is a pointer away, so that Secrets can be compared, and has a function, since reflection follows pointers to strings.
type held struct{ reveal func() string }

// New returns a Secret that holds value.
func New(value string) Secret { return Secret{&held{func() string { return value }}} }

// Reveal returns what is held.
func (s Secret) Reveal() string {
	if s.held == nil {
		return ""
	}
	return s.held.reveal()
}

const mark = "[redacted]"

// Format prints the mark under every verb.
func (s Secret) Format(f fmt.State, _ rune) { write(f, mark) }

// LogValue prints the mark in slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(mark) }

// MarshalLog prints the mark in logr.
func (s Secret) MarshalLog() any { return mark }

// MarshalText prints the mark in JSON, YAML and the like.
func (s Secret) MarshalText() ([]byte, error) { return []byte(mark), nil }

// Print writes the summary of a type that redacts itself; its Format method calls it.
func Print(f fmt.State, summary string) { write(f, summary) }

func write(f fmt.State, text string) {
	// Writing to a fmt.State cannot fail in a way that a Formatter could report.
	_, _ = f.Write([]byte(text))
}

const (
	// maxText bounds what a stranger's message can add to ours, in bytes.
	maxText = 512
	// maxMessage bounds what is looked through for that.
	maxMessage = 8 << 10
	// startOf a message is looked through first, in bytes: if enough is left of it, the rest need not be.
	startOf, enough = 4 * maxText, 2 * maxText
)

// Text makes a message that came from elsewhere fit for ours: one line, printable, bounded, without the given secrets.
// Parts of a secret count too if they are long enough to matter, and so do usual encodings, see Scrubber. What has the form of
// a credential goes too: the caller need not know the one that a server repeats, as that of a kubeconfig's plugin.
func Text(message string, secrets ...string) string {
	message = message[:min(len(message), maxMessage)]
	var thorough Scrubber
	for size := startOf; size < len(message); size *= 2 {
		if clean := fit(message[:size], secrets, &thorough); len(clean) >= enough {
			return shorten(clean)
		}
	}
	return shorten(fit(message, secrets, &thorough))
}

// fit is all that Text does but for the length. The Scrubber gets the secrets once it is needed.
func fit(message string, secrets []string, thorough *Scrubber) string {
	for _, secret := range secrets {
		message = scrub(message, secret)
	}
	if mayRepeat(message, secrets) {
		if thorough.empty() {
			for _, secret := range secrets {
				thorough.Add(secret)
			}
		}
		message = thorough.Clean(message)
	}
	message = login.ReplaceAllStringFunc(message, hideLogin)
	message = jwt.ReplaceAllString(message, mark)
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unprintable(r) {
			return ' '
		}
		return r
	}, message))
}

func hideLogin(found string) string {
	if challenge.MatchString(found) {
		return found
	}
	hidden := strings.Fields(found)[0] + " " + mark
	if strings.HasSuffix(found, `"`) {
		hidden += `"`
	}
	return hidden
}

func shorten(message string) string {
	if len(message) <= maxText {
		return message
	}
	cut := maxText
	for cut > 0 && !utf8.RuneStart(message[cut]) {
		cut--
	}
	return message[:cut] + "…"
}

var (
	// login is what follows a scheme in an Authorization header (RFC 7617, RFC 6750). Words of a sentence are shorter.
	login = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[\w.~+/=-]{16,}"?`)
	// challenge is what a WWW-Authenticate header has there (RFC 9110, section 11.2), such as authorization_uri="https://…".
	challenge = regexp.MustCompile(`\s[a-z_]+="$`)
	// jwt is the compact form of a JWT (RFC 7519), with its signature or cut off before.
	jwt = regexp.MustCompile(`\beyJ[\w-]{8,}\.[\w-]{8,}(\.[\w-]*)*`)
)

// maxURL bounds an address in a message, in bytes.
const maxURL = 300

// URL makes an address that somebody else wrote fit for messages: user information, query and fragment may hold secrets and
// are left out, however malformed the rest is.
func URL(address string) string {
	if i := strings.IndexAny(address, "?#"); i >= 0 {
		address = address[:i]
	}
	if i := strings.LastIndexByte(address, '@'); i >= 0 {
		scheme, _, found := strings.Cut(address[:i], "://")
		address = mark + address[i:]
		if found {
			address = scheme + "://" + address
		}
	}
	if len(address) > maxURL {
		address = address[:maxURL] + "…"
	}
	return address
}

// minSecret is the length from which a part of a secret is treated as one itself.
const minSecret = 8

// scrub takes a secret out as it is, and the parts of a JWT, however short.
func scrub(message, secret string) string {
	if len(secret) < minSecret {
		return message
	}
	message = strings.ReplaceAll(message, secret, mark)
	if !strings.Contains(secret, ".") {
		return message
	}
	for part := range strings.SplitSeq(secret, ".") {
		if len(part) >= minSecret {
			message = strings.ReplaceAll(message, part, mark)
		}
	}
	return message
}
