package doctor_test

import (
	"crypto/rsa"
	"encoding/json"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/olddoctor"
)

// An issuer that check 8 refuses is asked for nothing, whatever the checks between have said.
func TestRefusedIssuerGetsNoRequest(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer server.Close()
	w := newWorld(t, "aws")
	w.config.ServiceAccount, w.withoutCluster = client.ObjectKey{}, true
	w.config.IssuerClient = server.Client()
	w.write(w.sign(func(c map[string]any) {
		c["iss"] = "http://user:pw@" + strings.TrimPrefix(server.URL, "http://") + "/latest/meta-data?x=1"
	}))
	r := w.run()
	for _, id := range []string{"discovery", "keys", "issuer-tls"} {
		if f := r.Of(id); f.Result != doctor.Skip || f.Needs != 8 {
			t.Errorf("%s is %s and needs %d, not what check 8 refuses", id, f.Result, f.Needs)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the issuer got %d requests", n)
	}
}

// The bound is the finding: with it, no such key is tried at all.
func TestOverlongKeysAreNotTried(t *testing.T) {
	w := newWorld(t, "aws")
	claims, err := doctor.ParseClaims(w.sign(nil))
	if err != nil {
		t.Fatal(err)
	}
	w.config.Skip = []string{"exchange"} // it would show that the cloud has other keys
	n := new(big.Int).Lsh(big.NewInt(1), 8192)
	set := jose.JSONWebKeySet{}
	for range 5 {
		set.Keys = append(set.Keys, jose.JSONWebKey{KeyID: claims.KeyID, Key: &rsa.PublicKey{N: n, E: 1<<31 - 1}})
	}
	if w.config.JWKS, err = json.Marshal(set); err != nil {
		t.Fatal(err)
	}
	if f := w.run().Of("keys"); f.Result != doctor.Fail || !strings.Contains(f.Message, "none that a cloud would use") {
		t.Errorf("keys is %s: %s", f.Result, f.Message)
	}
}

// Of many keys with one ID, the first few alone are tried.
func TestFewKeysAreTried(t *testing.T) {
	w := newWorld(t, "aws")
	claims, err := doctor.ParseClaims(w.sign(nil))
	if err != nil {
		t.Fatal(err)
	}
	response := httptest.NewRecorder()
	w.issuer.ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), http.MethodGet, w.issuer.URL()+"/openid/v1/jwks", nil))
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(response.Body.Bytes(), &set); err != nil {
		t.Fatal(err)
	}
	other := jose.JSONWebKey{KeyID: claims.KeyID, Key: &rsa.PublicKey{N: new(big.Int).SetBit(big.NewInt(1), 2047, 1), E: 65537}}
	for others, want := range map[int]doctor.Result{3: doctor.Pass, 4: doctor.Fail} {
		w := newWorld(t, "aws")
		w.config.Skip = []string{"exchange"}
		many := jose.JSONWebKeySet{}
		for range others {
			many.Keys = append(many.Keys, other)
		}
		many.Keys = append(many.Keys, set.Keys...)
		if w.config.JWKS, err = json.Marshal(many); err != nil {
			t.Fatal(err)
		}
		if f := w.run().Of("keys"); f.Result != want {
			t.Errorf("after %d others, keys is %s: %s", others, f.Result, f.Message)
		}
	}
}
