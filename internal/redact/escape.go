package redact

import (
	"html"
	"math"
	"strings"
	"unicode/utf8"
)

// maxEntity is the length of the longest entity of HTML that is undone, in bytes.
const maxEntity = 16

// escape returns what text stands for that begins with an escape, and its length; 0 if it does not.
func escape(text []byte) (plain []byte, size int) {
	switch text[0] {
	case '%':
		return numbered(text, 1, 2, 16)
	case '\\':
		if len(text) > 1 {
			return backslash(text)
		}
	case '&':
		return entity(text)
	}
	return nil, 0
}

// entity undoes one of HTML.
func entity(text []byte) (plain []byte, size int) {
	for end := 1; end < min(len(text), maxEntity); end++ {
		switch c := text[end]; {
		case c == ';':
			found := string(text[:end+1])
			if shown := html.UnescapeString(found); shown != found {
				return []byte(shown), end + 1
			}
			return nil, 0
		case c == '#' && end == 1, sixBits(c) >= 0 && sixBits(c) < 62: // letters and digits
		default: // another escape may begin here
			return nil, 0
		}
	}
	return nil, 0
}

// unescaped is a text without its escapes.
func unescaped(text string) string {
	if !strings.ContainsAny(text, `%\&`) {
		return text
	}
	made, of := &view{}, viewOf(text)
	made.begin(of)
	made.unescape(of)
	return string(made.text)
}

func backslash(text []byte) (plain []byte, size int) {
	switch text[1] {
	case 'x':
		return numbered(text, 2, 2, 16)
	case 'u':
		return numbered(text, 2, 4, 16)
	case 'U':
		return numbered(text, 2, 8, 16)
	case '/', '"', '\'', '\\':
		return text[1:2], 2
	case 'n':
		return []byte{'\n'}, 2
	case 'r':
		return []byte{'\r'}, 2
	case 't':
		return []byte{'\t'}, 2
	}
	return numbered(text, 1, 3, 8)
}

// numbered undoes an escape with so many digits of a base after a prefix. Three are a byte, more a code point.
func numbered(text []byte, prefix, digits, base int) (plain []byte, size int) {
	end := prefix + digits
	if len(text) < end {
		return nil, 0
	}
	code, ok := number(text[prefix:end], base)
	switch {
	case !ok:
		return nil, 0
	case digits > 3:
		return utf8.AppendRune(nil, code), end
	case code > math.MaxUint8:
		return nil, 0
	}
	return []byte{byte(code & math.MaxUint8)}, end
}

// number parses digits of a base up to 16, without a sign. What is more than a code point is none.
func number(digits []byte, base int) (code rune, ok bool) {
	for _, c := range digits {
		d := digit(c)
		if d >= base {
			return 0, false
		}
		code = code*rune(base) + rune(d) //nolint:gosec // both are 16 at most
		if code > utf8.MaxRune {
			return 0, false
		}
	}
	return code, true
}

// digit is the value of a hexadecimal digit, and 16 that of all else.
func digit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return 16
}
