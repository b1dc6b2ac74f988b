package redact

import (
	"encoding/base64"
	"encoding/hex"
	"html"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// view is what a text reads as to somebody who undoes an encoding. Byte i of it stands for from[i] up to to[i] of the text.
type view struct {
	text     string
	from, to []int
	// joined says that its parts stood apart: only what is long is no accident then.
	joined bool
}

func viewOf(text string) view {
	v := view{text: text, from: make([]int, len(text)), to: make([]int, len(text))}
	for i := range len(text) {
		v.from[i], v.to[i] = i, i+1
	}
	return v
}

// writer makes one view of another.
type writer struct {
	of   view
	made view
	b    strings.Builder
}

// write has some bytes stand for those of the view from i up to end.
func (w *writer) write(bytes string, i, end int) {
	for range len(bytes) {
		w.made.from, w.made.to = append(w.made.from, w.of.from[i]), append(w.made.to, w.of.to[end-1])
	}
	w.b.WriteString(bytes)
}

func (w *writer) view() view {
	w.made.text = w.b.String()
	w.made.joined = w.made.joined || w.of.joined
	return w.made
}

// others are what one encoding less makes of a view. Together they are about five times as long.
func (v view) others() []view {
	var list []view
	if strings.ContainsAny(v.text, `%\&`) {
		list = append(list, v.unescaped())
	}
	if other := v.together(); len(other.text) != len(v.text) {
		list = append(list, other)
	}
	return v.decoded(list)
}

// unescaped undoes the escapes of URLs, of JSON and of programs, and of HTML.
func (v view) unescaped() view {
	w := &writer{of: v}
	for i := 0; i < len(v.text); {
		bytes, size := escape(v.text[i:])
		if size == 0 {
			bytes, size = v.text[i:i+1], 1
		}
		w.write(bytes, i, i+size)
		i += size
	}
	return w.view()
}

// escape returns what text begins with, if that is an escape, and its length.
func escape(text string) (bytes string, size int) {
	const hexadecimal = 16
	number := func(digits string, base int) (string, bool) {
		code, err := strconv.ParseUint(digits, base, 32)
		if err != nil || code > utf8.MaxRune {
			return "", false
		}
		if len(digits) <= 3 { // a byte
			return string([]byte{byte(code & math.MaxUint8)}), code <= math.MaxUint8
		}
		return string(rune(code)), true
	}
	for _, form := range []struct {
		prefix       string
		digits, base int
	}{{"%", 2, hexadecimal}, {`\x`, 2, hexadecimal}, {`\u`, 4, hexadecimal}, {`\U`, 8, hexadecimal}, {`\`, 3, 8}} {
		end := len(form.prefix) + form.digits
		if !strings.HasPrefix(text, form.prefix) || len(text) < end {
			continue
		}
		if bytes, ok := number(text[len(form.prefix):end], form.base); ok {
			return bytes, end
		}
	}
	switch {
	case len(text) > 1 && text[0] == '\\' && strings.IndexByte(`/"'\`, text[1]) >= 0:
		return text[1:2], 2
	case text[0] == '&':
		const longest = 10
		end := strings.IndexByte(text[:min(len(text), longest)], ';') + 1
		if plain := html.UnescapeString(text[:end]); plain != text[:end] {
			return plain, end
		}
	}
	return "", 0
}

// together leaves blanks out: those of lines that a text was broken into, or of what no terminal shows.
func (v view) together() view {
	w := &writer{of: v, made: view{joined: true}}
	for i := range len(v.text) {
		if v.text[i] > ' ' {
			w.write(v.text[i:i+1], i, i+1)
		}
	}
	return w.view()
}

// minRun is the length from which something may be encoded bytes.
const minRun = 10

// decoded adds what is in base64 or in hexadecimal digits, wherever in a run of its characters that begins.
func (v view) decoded(list []view) []view {
	const quantum = 4
	for offset := range quantum {
		list = append(list, v.runs(inBase64, offset, quantum, fromBase64))
	}
	const digits = 2
	for offset := range digits {
		list = append(list, v.runs(inHex, offset, digits, fromHex))
	}
	return list
}

func inBase64(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("+/-_", c) >= 0
}

func inHex(c byte) bool {
	return 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F' || '0' <= c && c <= '9'
}

// fromBase64 takes both alphabets (RFC 4648, sections 4 and 5), and up to four characters.
func fromBase64(group string) string {
	var encoded [4]byte
	var content [3]byte
	copy(encoded[:], group)
	for i := range encoded {
		switch encoded[i] {
		case '-':
			encoded[i] = '+'
		case '_':
			encoded[i] = '/'
		}
	}
	n, err := base64.RawStdEncoding.Decode(content[:], encoded[:len(group)])
	if err != nil {
		return ""
	}
	return string(content[:n])
}

func fromHex(group string) string {
	content, err := hex.DecodeString(group)
	if err != nil {
		return ""
	}
	return string(content)
}

// runs decodes all runs of such characters in groups of a size, beginning at an offset. A run's end may be less than a group.
func (v view) runs(has func(byte) bool, offset, size int, decode func(group string) string) view {
	w := &writer{of: v}
	w.b.Grow(len(v.text))
	for begin := 0; begin < len(v.text); {
		end := begin
		for end < len(v.text) && has(v.text[end]) {
			end++
		}
		if end-begin < minRun {
			begin = max(end, begin+1)
			continue
		}
		for i := begin + offset; i < end; i += size {
			to := min(i+size, end)
			w.write(decode(v.text[i:to]), i, to)
		}
		w.made.from, w.made.to = append(w.made.from, 0), append(w.made.to, 0)
		w.b.WriteByte(0) // runs do not touch
		begin = end
	}
	return w.view()
}
