package auth

import (
	"crypto/sha256"
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
	k.buf = append(append(k.buf, name...), '=')
	k.value(value)
	k.buf = append(k.buf, '\n')
}

// AddList adds an input that has several values, whose order counts.
func (k *KeyBuilder) AddList(name string, values []string) {
	if len(values) == 0 {
		return
	}
	k.buf = append(append(k.buf, name...), '=')
	k.buf = strconv.AppendInt(k.buf, int64(len(values)), 10)
	for _, v := range values {
		k.buf = append(k.buf, ';')
		k.value(v)
	}
	k.buf = append(k.buf, '\n')
}

func (k *KeyBuilder) value(v string) {
	k.buf = strconv.AppendInt(k.buf, int64(len(v)), 10)
	k.buf = append(k.buf, ':')
	k.buf = append(k.buf, v...)
}

func (k *KeyBuilder) sum() cache.Key { return sha256.Sum256(k.buf) }

func (k *KeyBuilder) reset() { k.buf = k.buf[:0] }
