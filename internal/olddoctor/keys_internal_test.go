package doctor

import (
	"context"
	"crypto/rsa"
	"math/big"
	"testing"

	"github.com/go-jose/go-jose/v4"
)

// Keys that take seconds to verify with are not tried, and none is when the time has run out.
func TestVerifiableKeys(t *testing.T) {
	for bits, want := range map[uint]bool{2047: true, 8191: true, 8192: false, 300_000: false} {
		if got := cheap(&rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), bits), E: 65537}); got != want {
			t.Errorf("%d bits: %t", bits, got)
		}
	}
	if !cheap([]byte("other")) {
		t.Error("other kinds of keys are quick")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e := &examination{token: heldToken{raw: "eyJhbGciOiJSUzI1NiJ9.e30.AAAA", claims: &Claims{KeyID: "a"}}}
	set := &jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{KeyID: "a", Key: &rsa.PublicKey{N: big.NewInt(3), E: 3}}}}
	if f := e.judgeKeys(ctx, set, "the keys"); f.Result != Unknown {
		t.Errorf("%+v", f)
	}
}
