package redact

import (
	"hash/maphash"
	"math/bits"
)

// index knows all parts of one length of some secrets. It takes about ten to twenty bytes for each byte of them, where a map
// would take a hundred: a token may be 16 KiB long, and one is made for each message that may repeat it.
type index struct {
	size int // of a part, in bytes
	seed maphash.Seed
	held []byte // the secrets, one after the other
	// slots have 1 + where in held a part begins, at the place that its hash says or in one of the next; 0: free.
	slots []uint32
	used  int
}

func newIndex(size int) *index { return &index{size: size, seed: maphash.MakeSeed()} }

// add has the parts of a secret found.
func (x *index) add(secret string) {
	if len(secret) < x.size {
		return
	}
	begin := len(x.held)
	x.held = append(x.held, secret...)
	x.reserve(len(secret))
	for i := begin; i+x.size <= len(x.held); i++ {
		x.insert(i)
	}
}

// reserve makes room for more parts: half of the slots stay free, so that few have to be looked at.
func (x *index) reserve(parts int) {
	need := 2 * (x.used + parts)
	if need <= len(x.slots) {
		return
	}
	old := x.slots
	x.slots, x.used = make([]uint32, 1<<bits.Len(uint(need))), 0
	for _, slot := range old {
		if slot != 0 {
			x.insert(int(slot) - 1)
		}
	}
}

func (x *index) insert(begin int) {
	at, found := x.find(x.held[begin : begin+x.size])
	if !found {
		x.slots[at] = uint32(begin) + 1 //nolint:gosec // secrets of 4 GiB are no secrets
		x.used++
	}
}

// find returns the slot of a part, or the free one where it would be. There must be slots.
func (x *index) find(part []byte) (slot int, found bool) {
	last := len(x.slots) - 1
	for at := int(maphash.Bytes(x.seed, part)) & last; ; at = (at + 1) & last { //nolint:gosec // the upper bits do not matter
		if x.slots[at] == 0 {
			return at, false
		}
		begin := int(x.slots[at]) - 1
		if string(x.held[begin:begin+x.size]) == string(part) {
			return at, true
		}
	}
}

// endsAt returns where the part that begins at i in a text ends, 0 if none does.
func (x *index) endsAt(text []byte, i int) int {
	if x == nil || len(x.slots) == 0 || i+x.size > len(text) {
		return 0
	}
	if _, found := x.find(text[i : i+x.size]); found {
		return i + x.size
	}
	return 0
}
