package auth

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/workloadid/workloadid/cache"
)

// keyBuilder implements provider.KeyBuilder. Each input carries its name, the
// number of its values and their lengths, so no two different inputs give the
// same bytes. An empty input is left out.
type keyBuilder struct{ inputs, variations []byte }

// Add implements provider.KeyBuilder.
func (k *keyBuilder) Add(name, value string) {
	if value != "" {
		k.inputs = appendValue(appendLength(appendValue(append(k.inputs, nextInput), name), 1), value)
	}
}

// AddList implements provider.KeyBuilder.
func (k *keyBuilder) AddList(name string, values []string) {
	k.inputs = appendList(k.inputs, name, values)
}

// AddVariation adds an input that is not in the key of a group.
func (k *keyBuilder) AddVariation(name string, values []string) {
	k.variations = appendList(k.variations, name, values)
}

func appendList(b []byte, name string, values []string) []byte {
	if len(values) == 0 {
		return b
	}
	b = appendLength(appendValue(append(b, nextInput), name), len(values))
	for _, v := range values {
		b = appendValue(b, v)
	}
	return b
}

func appendValue(b []byte, v string) []byte { return append(appendLength(b, len(v)), v...) }

func appendLength(b []byte, n int) []byte {
	return binary.AppendUvarint(b, uint64(n)) //nolint:gosec // a length
}

// nextPart separates the inputs of auth, of the provider and of a product, and
// the variations. Each input begins with nextInput, so that no name can imitate
// a part.
const (
	nextPart byte = iota
	nextInput
)

// sum returns the key of all inputs.
func (k *keyBuilder) sum() cache.Key {
	if len(k.variations) > 0 {
		return sha256.Sum256(append(append(k.inputs, nextPart), k.variations...))
	}
	return sha256.Sum256(k.inputs)
}

// group names the keys whose exchanges fail together. Their access tokens
// differ only in variations (provider.KeyBuilder), such as the bound object. A
// key without variations needs no group.
//
// The group holds all other inputs, because a tenant can get each of them wrong
// for one object alone. It holds a token of the caller, because a forged one
// could delay the ServiceAccount that it names. It holds the owner's namespace,
// so tenants that share an identity do not delay each other. Derived
// credentials have no group and back off with their access tokens: one
// registry's refusal says nothing about another registry.
func (k *keyBuilder) group(owner string) cache.Key {
	if len(k.variations) == 0 {
		return cache.Key{}
	}
	return sha256.Sum256(append(appendValue(nil, owner), k.inputs...))
}
