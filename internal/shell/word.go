// Package shell writes values from outside into commands that people paste.
package shell

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxWord bounds a word, in bytes. Longer values cannot be names.
const maxWord = 1024

const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:/._-=+,@%"

// Word makes of value one word of a POSIX shell, in single quotes where it
// needs them. It is the placeholder, which the reader has to fill in, for what
// no quoting makes harmless: what a terminal obeys, what programs take for an
// option, and what is empty or overlong.
func Word(value, placeholder string) string {
	switch {
	case value == "" || len(value) > maxWord || value[0] == '-' || !utf8.ValidString(value),
		strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) }):
		return placeholder
	case strings.Trim(value, plain) == "" && value[0] != '=':
		return value
	}
	return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
}
