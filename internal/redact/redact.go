// Package redact keeps secrets out of everything that prints. It makes two
// promises.
//
// A Secret, and every type that formats itself with Print, shows a mark instead
// of its value under every formatting verb, slog, logr and JSON.
//
// Text, Line and Clean replace in a text exactly these:
//   - the secrets that the caller names: as they are, URL-escaped (RFC 3986)
//     and in base64 (RFC 4648, sections 4 and 5);
//   - every JWT, whole or cut off after its payload has begun;
//   - the credential of every "Bearer …" and "Basic …".
//
// That is all. They find no part of a secret and undo no encoding. Base64 of a
// URL-escaped secret stays, as does a secret with line breaks inside. A caller
// therefore quotes of a service only its status, its code and, where the body
// has the form that the service documents, its message; never another body.
//
// The time that they take grows linearly with the text and with the number of
// secrets.
package redact

import (
	"fmt"
	"log/slog"
	"strings"
)

// Secret holds a string that no printing, logging or encoding package can read,
// even in a field of a struct that is printed by reflection: there it shows as
// an address. The zero value is the empty string. A Secret is equal to its
// copies, for == and reflect.DeepEqual, and to no other Secret, whatever it
// holds. Compare the results of Reveal instead.
type Secret struct {
	held *held
}

// held is behind a pointer, so that Secrets can be compared, and is a function,
// because reflection follows pointers to strings.
type held struct{ reveal func() string }

// New returns a Secret that holds value.
func New(value string) Secret { return Secret{&held{func() string { return value }}} }

// Reveal returns the value.
func (s Secret) Reveal() string {
	if s.held == nil {
		return ""
	}
	return s.held.reveal()
}

const mark = "[redacted]"

// Format prints the mark under every verb.
func (s Secret) Format(f fmt.State, _ rune) { Print(f, mark) }

// LogValue prints the mark in slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(mark) }

// MarshalLog prints the mark in logr.
func (s Secret) MarshalLog() any { return mark }

// MarshalText prints the mark in JSON, YAML and the like.
func (s Secret) MarshalText() ([]byte, error) { return []byte(mark), nil }

// Print writes the summary of a type that redacts itself. The type's Format
// method calls it.
func Print(f fmt.State, summary string) {
	_, _ = f.Write([]byte(summary)) // a Formatter cannot report an error
}

// maxURL bounds an address in a message, in bytes.
const maxURL = 300

// URL makes an address from outside fit for messages. User information, query
// and fragment may hold secrets and are left out, however malformed the rest
// is.
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
	return cut(address, maxURL)
}

// Summary is the text that a type shows in place of its secrets. The type
// embeds it and so prints nothing else.
type Summary string

// String returns the text.
func (s Summary) String() string { return string(s) }

// Format prints the text under every verb.
func (s Summary) Format(f fmt.State, _ rune) { Print(f, string(s)) }

// LogValue prints the text in slog.
func (s Summary) LogValue() slog.Value { return slog.StringValue(string(s)) }

// MarshalLog prints the text in logr.
func (s Summary) MarshalLog() any { return string(s) }

// MarshalText prints the text in JSON, YAML and the like.
func (s Summary) MarshalText() ([]byte, error) { return []byte(s), nil }
