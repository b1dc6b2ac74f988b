package redact

import (
	"math"
	"slices"
	"unicode"
	"unicode/utf8"
)

// view is what a text reads as to somebody who undoes an encoding. Byte i of it stands for the span at[i] of the text; those
// of what follows begin and end no earlier.
type view struct {
	text []byte
	at   []span
	// joined says that its parts stood apart: only what is long is no accident then.
	joined bool
}

type span struct{ from, to uint32 }

func viewOf(text string) *view {
	v := &view{text: []byte(text), at: make([]span, len(text))}
	for i := range v.at {
		v.at[i] = span{uint32(i), uint32(i + 1)} //nolint:gosec // texts are shorter than 4 GiB
	}
	return v
}

// begin empties a view, and has it be of another one.
func (v *view) begin(of *view) {
	v.text = slices.Grow(v.text[:0], len(of.text))
	v.at = slices.Grow(v.at[:0], len(of.at))
	v.joined = of.joined
}

// write has some bytes stand for those of another view from i up to end.
func (v *view) write(of *view, i, end int, plain []byte) {
	at := span{of.at[i].from, of.at[end-1].to}
	v.text = append(v.text, plain...)
	for range plain {
		v.at = append(v.at, at)
	}
}

// keep writes one byte as it is.
func (v *view) keep(of *view, i int) {
	v.text = append(v.text, of.text[i])
	v.at = append(v.at, of.at[i])
}

// encodings yields what undoes each: it writes what another view says to an empty one, and reports whether that differs.
// Together they write about five times as much as there was.
func encodings(yield func(undo func(made, of *view) bool) bool) {
	if !yield((*view).unescape) || !yield((*view).join) {
		return
	}
	for _, code := range [...]code{{inBase64, fromBase64, 4}, {inHex, fromHex, 2}} {
		for offset := range code.group {
			if !yield(func(made, of *view) bool { return made.decode(of, code, offset) }) {
				return
			}
		}
	}
}

// unescape undoes the escapes of URLs, of JSON and of programs, and of HTML.
func (v *view) unescape(of *view) bool {
	some := false
	for i := 0; i < len(of.text); {
		plain, size := escape(of.text[i:])
		if size == 0 {
			v.keep(of, i)
			i++
			continue
		}
		v.write(of, i, i+size, plain)
		i += size
		some = true
	}
	return some
}

// join leaves blanks out: those of lines that a text was broken into, and what no terminal shows.
func (v *view) join(of *view) bool {
	v.joined = true
	for i := 0; i < len(of.text); {
		blank, size := letter(of.text[i:])
		for end := i + size; i < end; i++ {
			if !blank {
				v.keep(of, i)
			}
		}
	}
	return len(v.text) != len(of.text)
}

// letter returns the length of what a text begins with, and whether that is a blank.
func letter[T ~string | ~[]byte](text T) (blank bool, size int) {
	if c := text[0]; c < utf8.RuneSelf {
		return c <= ' ' || c == '\x7f', 1
	}
	r, size := utf8.DecodeRuneInString(string(text[:min(len(text), utf8.UTFMax)]))
	return unprintable(r) || unicode.In(r, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point), size
}

// unprintable has no place in a message.
func unprintable(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }

// code writes bytes in groups of characters.
type code struct {
	has    func(c byte) bool
	decode func(group []byte) (plain [3]byte, size int)
	group  int
}

// minRun is the length from which something may be encoded bytes.
const minRun = 10

// decode decodes all runs of a code's characters, beginning at an offset. A run's end may be less than a group.
func (v *view) decode(of *view, code code, offset int) bool {
	for begin := 0; begin < len(of.text); {
		end := begin
		for end < len(of.text) && code.has(of.text[end]) {
			end++
		}
		if end-begin < minRun {
			begin = max(end, begin+1)
			continue
		}
		for i := begin + offset; i < end; i += code.group {
			to := min(i+code.group, end)
			plain, size := code.decode(of.text[i:to])
			v.write(of, i, to, plain[:size])
		}
		v.write(of, end-1, end, []byte{0}) // runs do not touch
		begin = end
	}
	return true
}

func inBase64(c byte) bool { return sixBits(c) >= 0 }

// sixBits is what a character stands for in both alphabets (RFC 4648, sections 4 and 5), -1 if it is in none.
func sixBits(c byte) int {
	switch {
	case 'A' <= c && c <= 'Z':
		return int(c - 'A')
	case 'a' <= c && c <= 'z':
		return int(c-'a') + 26
	case '0' <= c && c <= '9':
		return int(c-'0') + 52
	case c == '+' || c == '-':
		return 62
	case c == '/' || c == '_':
		return 63
	}
	return -1
}

// fromBase64 takes up to four characters.
func fromBase64(group []byte) (plain [3]byte, size int) {
	all := 0
	for i := range 4 {
		all <<= 6
		if i < len(group) {
			all |= sixBits(group[i])
		}
	}
	return [3]byte{byte(all >> 16 & math.MaxUint8), byte(all >> 8 & math.MaxUint8), byte(all & math.MaxUint8)}, len(group) - 1
}

func inHex(c byte) bool { return digit(c) < 16 }

// fromHex takes up to two digits.
func fromHex(group []byte) (plain [3]byte, size int) {
	code, ok := number(group, 16)
	if !ok || len(group) < 2 {
		return plain, 0
	}
	return [3]byte{byte(code & math.MaxUint8)}, 1
}
