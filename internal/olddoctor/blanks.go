package doctor

import (
	"strings"
	"unicode"
)

const byBlanks = "they differ only by blanks, or by characters that nobody sees"

// visible is what people see of a value: neither blanks nor what is not printed.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
}
