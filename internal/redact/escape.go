package redact

import (
	"bytes"
	"html"
	"math"
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
		end := bytes.IndexByte(text[:min(len(text), maxEntity)], ';') + 1
		entity := string(text[:end])
		if shown := html.UnescapeString(entity); shown != entity {
			return []byte(shown), end
		}
	}
	return nil, 0
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
	case 'n', 'r', 't':
		return []byte{' '}, 2
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
