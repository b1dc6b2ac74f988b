package token_test

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
)

// The API server refuses a token once it has expired. The agent replaces it
// before, or after an outage of the agent.
func TestTokenExpires(t *testing.T) {
	w := newAddOnEnvironment(t)
	m := w.join("expires")
	m.run(newToken(t, 600))
	m.NewAddOn("addon1", kubeClientItem)
	m.Registered("addon1", registration.AuthTypeToken)
	issued := m.tokenOf("addon1")
	var expired string
	// The API server allows a minute of clock skew.
	kubetest.Eventually(t, "it takes a token that expired 50 s ago", func() bool {
		expired = signAgain(t, m.Hub, issued, -10*time.Minute, -50*time.Second)
		return isGood(t, regtest.NewClient(t, regtest.WithToken(m.Hub.Config(), expired)))
	})
	w.Step("the agent replaces a token that still works", func(t *testing.T) {
		before := m.tokenRequests("addon1")
		aging := signAgain(t, m.Hub, issued, -9*time.Minute, time.Minute)
		m.store("addon1", aging)
		old := m.AddOnClient("addon1")
		m.UntilAddOn("addon1", "there is another token", func() bool { return m.tokenOf("addon1") != aging })
		if !isGood(t, old) {
			t.Error("the old token was refused before it was replaced")
		}
		m.expectOther(t, "addon1", aging)
		if n := m.tokenRequests("addon1") - before; n != 1 {
			t.Errorf("got %d requests for tokens, want 1", n)
		}
	})
	w.Step("the token expires while no agent runs", func(t *testing.T) {
		m.stop()
		m.store("addon1", expired)
		old := m.AddOnClient("addon1")
		kubetest.Eventually(t, "the API server refuses it", func() bool { return !isGood(t, old) })
	})
	w.Step("an agent that starts again replaces it", func(t *testing.T) {
		m.run(newToken(t, 600))
		m.UntilAddOn("addon1", "there is another token", func() bool { return m.tokenOf("addon1") != expired })
		m.expectOther(t, "addon1", expired)
	})
}

// store puts a token into the Secret of an add-on, as if the agent had stored
// it before.
func (m *addOnMember) store(addOn, raw string) {
	m.T.Helper()
	secret := m.secret(addOn)
	secret.Data["token"] = []byte(raw)
	maps.DeleteFunc(secret.Data, func(key string, _ []byte) bool { return strings.HasPrefix(key, "state.") })
	regtest.Must(m.T, m.Local.Update(m.T.Context(), secret))
}

// signAgain returns a token with other times, counted from now, which the
// cluster's own key signs.
func signAgain(t *testing.T, cluster *kubetest.Cluster, raw string, issued, expires time.Duration) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(cluster.APIServer().CertDir, "sa-signer.key"))
	regtest.Must(t, err)
	block, _ := pem.Decode(content)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	regtest.Must(t, err)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, nil)
	regtest.Must(t, err)
	token, err := jose.ParseSigned(raw, []jose.SignatureAlgorithm{jose.ES256})
	regtest.Must(t, err)
	claims, now := map[string]any{}, time.Now()
	regtest.Must(t, json.Unmarshal(token.UnsafePayloadWithoutVerification(), &claims))
	claims["iat"], claims["nbf"], claims["exp"] = now.Add(issued).Unix(), now.Add(issued).Unix(), now.Add(expires).Unix()
	payload, err := json.Marshal(claims)
	regtest.Must(t, err)
	signed, err := signer.Sign(payload)
	regtest.Must(t, err)
	compact, err := signed.CompactSerialize()
	regtest.Must(t, err)
	return compact
}
