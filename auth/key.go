package auth

import (
	"crypto/sha256"
	"slices"
	"strconv"

	"github.com/workloadid/workloadid/cache"
)

// KeyBuilder collects the inputs of a credential, one line each, and hashes them. Every value is written with its
// length before it, so no two different inputs give the same text:
//
//	provider=3:aws
//	scopes=2;1:a;3:b,c
//
// An input that is empty is left out. The zero value is ready for use; a KeyBuilder is not safe for concurrent use.
type KeyBuilder struct {
	buf []byte
}

// Add adds an input. The name is a constant without "=".
func (k *KeyBuilder) Add(name, value string) {
	if value == "" {
		return
	}
	k.buf = appendInput(append(k.buf, name...), "=", value)
}

// add is Add for names that bring their "=".
func (k *KeyBuilder) add(name, value string) { k.buf = appendInput(k.buf, name, value) }

// appendInput makes room once: of a hit of the cache, much of the time goes into the key.
func appendInput(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	const length = 20 + len(":\n") // of any int, and what is around the value
	b = slices.Grow(b, len(name)+len(value)+length)
	n := len(b)
	b = b[:n+len(name)]
	copy(b[n:], name)
	b = append(appendLength(b, len(value)), ':')
	n = len(b)
	b = b[:n+len(value)+1]
	copy(b[n:], value)
	b[n+len(value)] = '\n'
	return b
}

// AddList adds an input that has several values, whose order counts.
func (k *KeyBuilder) AddList(name string, values []string) {
	if len(values) == 0 {
		return
	}
	b := append(k.buf, name...)
	b = append(b, '=')
	b = appendLength(b, len(values))
	for _, v := range values {
		b = append(b, ';')
		b = appendValue(b, v)
	}
	k.buf = append(b, '\n')
}

func appendValue(b []byte, v string) []byte {
	return append(append(appendLength(b, len(v)), ':'), v...)
}

// appendLength is strconv.AppendInt, quicker for what most values have: less than a hundred bytes.
func appendLength(b []byte, n int) []byte {
	switch {
	case n < 10:
		return append(b, '0'+byte(n)) //nolint:gosec // a length
	case n < 100:
		return append(b, '0'+byte(n/10), '0'+byte(n%10))
	}
	return strconv.AppendInt(b, int64(n), 10)
}

func (k *KeyBuilder) sum() cache.Key { return sha256.Sum256(k.buf) }
