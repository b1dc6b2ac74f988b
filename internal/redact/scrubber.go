package redact

import (
	"bytes"
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
	whole [][]byte
	// long has the parts of minPart bytes, short those of minSecret.
	long, short *index
}

// Add has a secret found, and parts of it. What is shorter than 8 bytes is not.
func (s *Scrubber) Add(secret string) {
	if len(secret) < minSecret {
		return
	}
	if s.long == nil {
		s.long, s.short = newIndex(minPart), newIndex(minSecret)
	}
	for _, form := range forms(secret) {
		s.long.add(form)
		if len(secret) < 2*minPart {
			s.short.add(form)
		}
		// Where blanks are left out, those of the secret are too.
		if together := joined(form); together != form {
			s.long.add(together)
		}
	}
}

// AddWhole has something found that is a secret as a whole only.
func (s *Scrubber) AddWhole(secret string) {
	if len(secret) < minSecret {
		return
	}
	for _, form := range forms(secret) {
		s.whole = append(s.whole, []byte(form))
		if together := joined(form); together != form && len(together) >= minSecret {
			s.whole = append(s.whole, []byte(together))
		}
	}
}

// forms are how others write it, where that is not undone, and what is left of it where more is undone than they wrote.
func forms(secret string) []string {
	list := []string{secret}
	quoted := strconv.Quote(secret)
	for _, form := range []string{
		url.QueryEscape(secret), url.PathEscape(secret), quoted[1 : len(quoted)-1], unescaped(secret),
	} {
		if form != secret {
			list = append(list, form)
		}
	}
	return list
}

func (s *Scrubber) empty() bool { return len(s.whole) == 0 && s.long == nil }

// Clean puts a mark in the place of each secret.
func (s *Scrubber) Clean(text string) string {
	if s.empty() {
		return text
	}
	l := &look{Scrubber: s, secret: make([]bool, len(text))}
	l.into(viewOf(text), 0)
	var b strings.Builder
	for i := range len(text) {
		switch {
		case !l.secret[i]:
			b.WriteByte(text[i])
		case i == 0 || !l.secret[i-1]:
			b.WriteString(mark)
		}
	}
	return b.String()
}

// look is one through a text. It takes time and memory in proportion to the text's length, whatever is in it.
type look struct {
	*Scrubber
	secret []bool             // which bytes of the text are
	made   [maxEncodings]view // one after the other at each depth
}

// into marks what is secret in a view of the text, which as many encodings have been undone for as depth says.
func (l *look) into(v *view, depth int) {
	l.mark(v)
	if depth == maxEncodings {
		return
	}
	made := &l.made[depth]
	for undo := range encodings {
		made.begin(v)
		if undo(made, v) && len(made.text) >= minSecret {
			l.into(made, depth+1)
		}
	}
}

// mark marks the bytes of the text that are secret in a view of it.
func (l *look) mark(v *view) {
	for _, whole := range l.whole {
		for at := 0; ; at += len(whole) {
			next := bytes.Index(v.text[at:], whole)
			if next < 0 {
				break
			}
			at += next
			l.found(v.at[at].from, v.at[at+len(whole)-1].to)
		}
	}
	done := uint32(0) // what follows a part of a secret is mostly the next
	for i := range v.text {
		end := l.long.endsAt(v.text, i)
		if end == 0 && !v.joined {
			end = l.short.endsAt(v.text, i)
		}
		if end != 0 {
			to := v.at[end-1].to
			l.found(max(done, v.at[i].from), to)
			done = to
		}
	}
}

func (l *look) found(from, to uint32) {
	for i := from; i < to; i++ {
		l.secret[i] = true
	}
}
