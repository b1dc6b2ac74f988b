package redact

import (
	"encoding/base64"
	"strings"
)

const (
	// maxPlainRun is the length up to which letters and digits in a row are taken for a name or an ID, in bytes.
	maxPlainRun = 39
	// sample is how much of a message is compared at once, in bytes.
	sample = minSecret
	// maxQuick is the length up to which the quick look at a message is quicker than the thorough one, in bytes.
	maxQuick = 1 << 10
)

// mayRepeat is a quick look whether a Scrubber could find a secret in a message: few messages repeat anything, and looking
// thoroughly takes ten times as long as all else about a failure. It may be wrong in one direction only, except for parts of
// a secret whose encoding takes less than 40 characters, and for an encoding in pieces that short with blanks between them that
// neither end nor begin a line.
func mayRepeat(message string, secrets []string) bool {
	if len(message) > maxQuick || mayEncode(message, secrets) || mayContain(message, secrets) {
		return true
	}
	together := joined(message)
	if len(together) == len(message) {
		return false
	}
	for _, secret := range secrets {
		if mayContain(together, []string{joined(secret)}) {
			return true
		}
	}
	return false
}

// mayEncode finds escapes, and runs of characters, over the ends of lines and indents too, that are longer than those of names
// and IDs, or than a secret in base64.
func mayEncode(message string, secrets []string) bool {
	longest, plus := maxPlainRun, false // plus: a form has them for blanks
	for _, secret := range secrets {
		plus = plus || strings.Contains(secret, " ")
		if len(secret) >= minSecret {
			longest = min(longest, base64.RawStdEncoding.EncodedLen(len(secret))-1)
		}
	}
	run, indent := 0, false
	for i := range len(message) {
		switch c := message[i]; {
		case c == '%' || c == '\\' || c == '&' || c == '+' && plus:
			return true
		case c == '\r' || c == '\n':
			indent = true
		case indent && (c == ' ' || c == '\t'):
		case inBase64(c):
			indent = false
			run++
			if run > longest {
				return true
			}
		default:
			run, indent = 0, false
		}
	}
	return false
}

// mayContain compares samples that are so close together that each part of a secret that a Scrubber knows holds one.
func mayContain(message string, secrets []string) bool {
	for _, secret := range secrets {
		step := minPart - sample + 1
		if len(secret) < 2*minPart {
			step = 1
		}
		for i := 0; i+sample <= len(message); i += step {
			if strings.Contains(secret, message[i:i+sample]) {
				return true
			}
		}
	}
	return false
}

// joined is a text without blanks. Tokens are long and have none, which is seen quickly.
func joined(text string) string {
	plain := true
	for i := 0; plain && i < len(text); i++ {
		plain = ' ' < text[i] && text[i] < '\x7f'
	}
	if plain {
		return text
	}
	var b strings.Builder
	b.Grow(len(text))
	for i := 0; i < len(text); {
		blank, size := letter(text[i:])
		if !blank {
			b.WriteString(text[i : i+size])
		}
		i += size
	}
	return b.String()
}
