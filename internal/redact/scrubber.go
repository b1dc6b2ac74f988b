package redact

import (
	"net/url"
	"strconv"
	"strings"
)

const (
	// minPart is how much of a secret counts as one, in bytes: servers cut what they echo. Of a secret that is not twice as
	// long it is minSecret.
	minPart = 16
	// maxEncodings is how many encodings of a secret are undone, one in the other.
	maxEncodings = 2
)

// Scrubber takes secrets out of text, also in parts, and as URLs, quoted text, HTML, base64 and the like have them. The zero
// value knows none. It is not safe for concurrent use while secrets are added.
type Scrubber struct {
	whole []string
	// parts are all parts of minPart and minSecret bytes: looking one up takes as long whatever the number of secrets.
	parts map[string]struct{}
}

// Add has a secret found, and parts of it. What is shorter than 8 bytes is not.
func (s *Scrubber) Add(secret string) {
	if s.parts == nil {
		s.parts = map[string]struct{}{}
	}
	size := minPart
	if len(secret) < 2*minPart {
		size = minSecret
	}
	for _, form := range forms(secret) {
		for i := 0; i+size <= len(form); i++ {
			s.parts[form[i:i+size]] = struct{}{}
		}
	}
}

// AddWhole has something found that is a secret as a whole only.
func (s *Scrubber) AddWhole(secret string) {
	if len(secret) >= minSecret {
		s.whole = append(s.whole, forms(secret)...)
	}
}

// forms are how others write it, where that is not undone.
func forms(secret string) []string {
	list := []string{secret}
	quoted := strconv.Quote(secret)
	for _, form := range []string{url.QueryEscape(secret), url.PathEscape(secret), quoted[1 : len(quoted)-1]} {
		if form != secret {
			list = append(list, form)
		}
	}
	return list
}

// Clean puts a mark in the place of each secret.
func (s *Scrubber) Clean(text string) string {
	if len(s.whole) == 0 && len(s.parts) == 0 {
		return text
	}
	secret := make([]bool, len(text))
	s.mark(viewOf(text), secret, maxEncodings)
	var b strings.Builder
	for i := range len(text) {
		switch {
		case !secret[i]:
			b.WriteByte(text[i])
		case i == 0 || !secret[i-1]:
			b.WriteString(mark)
		}
	}
	return b.String()
}

// mark marks the bytes of the text that are secret in a view of it.
func (s *Scrubber) mark(v view, secret []bool, encodings int) {
	found := func(from, to int) {
		for i := v.from[from]; i < v.to[to-1]; i++ {
			secret[i] = true
		}
	}
	for _, whole := range s.whole {
		for at := 0; ; at += len(whole) {
			next := strings.Index(v.text[at:], whole)
			if next < 0 {
				break
			}
			at += next
			found(at, at+len(whole))
		}
	}
	for i := range len(v.text) {
		if end := s.partAt(v, i); end != 0 {
			found(i, end)
		}
	}
	if encodings == 0 {
		return
	}
	for _, other := range v.others() {
		if len(other.text) >= minSecret {
			s.mark(other, secret, encodings-1)
		}
	}
}

// partAt returns where a part of a secret that begins at i ends, 0 if none does.
func (s *Scrubber) partAt(v view, i int) int {
	for _, size := range []int{minPart, minSecret} {
		if i+size > len(v.text) || size == minSecret && v.joined {
			continue
		}
		if _, found := s.parts[v.text[i:i+size]]; found {
			return i + size
		}
	}
	return 0
}
