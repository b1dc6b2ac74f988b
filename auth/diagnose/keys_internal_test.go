package diagnose

import (
	"context"
	"crypto/rsa"
	"math/big"
	"testing"

	"github.com/go-jose/go-jose/v4"
)

// Keys that take seconds to verify with are not tried, and none is when the time has run out.
func TestVerifiableKeys(t *testing.T) {
	for _, tt := range []struct {
		bits uint
		e    int
		want bool
	}{{2047, 65537, true}, {8191, 65537, true}, {8192, 65537, false}, {300_000, 65537, false}, {2047, 1<<31 - 1, false}} {
		key := &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), tt.bits), E: tt.e}
		if got := verifiable(&jose.JSONWebKey{Key: key}); got != tt.want {
			t.Errorf("%d bits, exponent %d: %t", tt.bits, tt.e, got)
		}
	}
	if !verifiable(&jose.JSONWebKey{Key: []byte("other")}) {
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
