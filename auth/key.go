package auth

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/workloadid/workloadid/cache"
)

// KeyBuilder collects the inputs of a credential and hashes them. Each says what it is and has its length before it, so no
// two different inputs give the same bytes. An input that is empty is left out. The zero value is ready for use; a KeyBuilder
// is not safe for concurrent use.
type KeyBuilder struct {
	buf    []byte
	varied bool // AddVariation was called
	group  bool // leave variations out
}

// input says what the next bytes of a key are. One byte: of a hit of the cache, a good part is writing and hashing these.
type input byte

const (
	inputNamed     input = iota // its name follows, then its value
	inputNamedList              // its name follows, then its values
	inputProvider
	inputClusterID
	inputIdentity
	inputName
	inputNamespace
	inputUID
	inputAudiences
	inputOwnAudiences
	inputScopes
	inputSTSRegion
	inputSTSEndpoint
	inputRegistry
	inputGit
	inputCluster
	inputClusterAddress
	inputClusterCA
	inputClusterOther
)

// Add adds an input.
func (k *KeyBuilder) Add(name, value string) {
	if value == "" {
		return
	}
	k.buf = appendValue(appendValue(append(k.buf, byte(inputNamed)), name), value)
}

// AddList adds an input that has several values, whose order counts.
func (k *KeyBuilder) AddList(name string, values []string) {
	if len(values) == 0 {
		return
	}
	k.buf = appendValues(appendValue(append(k.buf, byte(inputNamedList)), name), values)
}

// AddVariation adds an input that shapes the credential, but hardly ever decides whether the exchange succeeds, such as the
// pod that a session is for. When the exchanges of two keys fail that differ only in variations, all such keys back off together.
// An input that a tenant can easily get wrong for one object alone is no variation.
func (k *KeyBuilder) AddVariation(name string, values []string) {
	if len(values) == 0 {
		return
	}
	k.varied = true
	if !k.group {
		k.AddList(name, values)
	}
}

// appendInput writes one of the usual inputs.
func appendInput(b []byte, what input, value string) []byte {
	if value == "" {
		return b
	}
	if len(value) < maxShort {
		b = append(b, byte(what), byte(len(value))) //nolint:gosec // it was just compared
	} else {
		b = appendLength(append(b, byte(what)), len(value))
	}
	return append(b, value...)
}

// appendInputs is appendInput for several values, whose order counts.
func appendInputs(b []byte, what input, values []string) []byte {
	if len(values) == 0 {
		return b
	}
	return appendValues(append(b, byte(what)), values)
}

func appendValues(b []byte, values []string) []byte {
	b = appendLength(b, len(values))
	for _, v := range values {
		b = appendValue(b, v)
	}
	return b
}

func appendValue(b []byte, v string) []byte { return append(appendLength(b, len(v)), v...) }

// maxShort is the first length that takes more than one byte.
const maxShort = 1 << 7

func appendLength(b []byte, n int) []byte {
	return binary.AppendUvarint(b, uint64(n)) //nolint:gosec // a length
}

func (k *KeyBuilder) sum() cache.Key { return sha256.Sum256(k.buf) }
