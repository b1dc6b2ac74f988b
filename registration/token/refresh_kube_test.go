package token_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/csr"
)

// isGood reports whether the API server takes the credential.
func isGood(t *testing.T, c client.Client) bool {
	t.Helper()
	err := c.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace("default"))
	if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
		t.Fatalf("error %v", err)
	}
	return apierrors.IsForbidden(err)
}

func TestAddOnTokenRefresh(t *testing.T) {
	w := newAddOnWorld(t)
	m := w.join("refresh")
	m.run(newToken(t, 600))
	// add creates an add-on and returns its first token.
	add := func(name string) string {
		m.NewAddOn(name, kubeClientItem)
		m.Registered(name, registration.AuthTypeToken)
		return m.tokenOf(name)
	}
	w.Step("at 80 percent of the lifetime", func(t *testing.T) {
		first := add("ages")
		old := m.AddOnClient("ages")
		if at := m.ReconcileAddOn("ages").RequeueAfter; at < 440*time.Second || at > 480*time.Second {
			t.Errorf("the next look is after %s", at)
		}
		m.set(440 * time.Second)
		defer m.set(0)
		if m.ReconcileAddOn("ages"); m.tokenOf("ages") != first {
			t.Error("it is refreshed before 75 percent")
		}
		m.set(481 * time.Second)
		m.ReconcileAddOn("ages")
		m.expectOther(t, "ages", first)
		if n := m.tokenRequests("ages"); n != 2 || !isGood(t, old) {
			t.Errorf("%d requests, the old token is good: %t", n, isGood(t, old))
		}
	})
	w.Step("the ServiceAccount is recreated", func(t *testing.T) {
		first, account := add("recreated"), m.account("recreated")
		old := m.AddOnClient("recreated")
		if err := m.Admin.Delete(t.Context(), account); err != nil {
			t.Fatal(err)
		}
		m.UntilAddOn("recreated", "it has a token of the new ServiceAccount", func() bool {
			uid := string(m.account("recreated").UID)
			return uid != "" && uid != string(account.UID) && string(m.secret("recreated").Data["uid"]) == uid
		})
		m.expectOther(t, "recreated", first)
		stale := &authenticationv1.TokenRequest{ObjectMeta: metav1.ObjectMeta{UID: account.UID}}
		if err := m.Own().SubResource("token").Create(t.Context(), m.account("recreated"), stale); !apierrors.IsConflict(err) {
			t.Errorf("a request for the deleted ServiceAccount: %v", err)
		}
		regtest.Eventually(t, "the old token is refused", func() bool { return !isGood(t, old) })
	})
	w.Step("the Secret is deleted", func(t *testing.T) {
		first := add("deleted")
		if err := m.Local.Delete(t.Context(), m.secret("deleted")); err != nil {
			t.Fatal(err)
		}
		m.UntilAddOn("deleted", "the Secret is back", func() bool { token := m.tokenOf("deleted"); return token != "" && token != first })
		m.expectOther(t, "deleted", first)
	})
	w.Step("a wrong clock does not request in a loop", func(t *testing.T) {
		defer m.set(0)
		for i, ahead := range []time.Duration{time.Hour, 24 * time.Hour, -time.Hour} {
			m.set(ahead)
			name := fmt.Sprintf("clock%d", i)
			add(name)
			for range 20 {
				m.ReconcileAddOn(name)
			}
			if n := m.tokenRequests(name); n > 2 || !isGood(t, m.AddOnClient(name)) {
				t.Errorf("%d requests with a clock that is %s ahead", n, ahead)
			}
		}
	})
	w.Step("a clock that is set back while it runs", func(t *testing.T) {
		m.set(time.Hour)
		defer m.set(0)
		add("back")
		m.set(0)
		for range 20 {
			m.ReconcileAddOn("back")
		}
		if n := m.tokenRequests("back"); n > 2 {
			t.Errorf("%d requests", n)
		}
	})
	w.Step("the hub moves", func(t *testing.T) { m.expectMove(t, "moved", add) })
}

func (m *addOnMember) tokenOf(addOn string) string {
	m.T.Helper()
	return string(m.secret(addOn).Data["token"])
}

// expectOther expects a token that works in the place of another.
func (m *addOnMember) expectOther(t *testing.T, addOn, first string) {
	t.Helper()
	if m.tokenOf(addOn) == first || !isGood(t, m.AddOnClient(addOn)) {
		t.Error("there is no other token that works")
	}
	m.UntilAddOn(addOn, "the condition says when the new one expires", func() bool {
		return strings.Contains(m.Condition(addOn, "AddonTokenRefreshed").Message, string(m.secret(addOn).Data["expiration"]))
	})
}

// expectMove gives the hub another address, then another CA.
func (m *addOnMember) expectMove(t *testing.T, addOn string, add func(string) string) {
	t.Helper()
	first, hub := add(addOn), m.Hub.Config()
	moved := strings.Replace(hub.Host, "127.0.0.1", "localhost", 1)
	twice := append(bytes.Clone(hub.CAData), hub.CAData...)
	for _, to := range []struct {
		what, host string
		ca         []byte
	}{{"address", moved, hub.CAData}, {"CA", moved, twice}} {
		m.WriteBootstrap(to.host, to.ca)
		m.UntilAddOn(addOn, "the kubeconfig has the new "+to.what, func() bool {
			config, err := regtest.CredentialOf(m.secret(addOn))
			if err != nil {
				t.Fatal(err)
			}
			return strings.HasSuffix(to.host, strings.TrimPrefix(config.Host, "https://")) && bytes.Equal(bytes.TrimSpace(config.CAData), bytes.TrimSpace(to.ca))
		})
		if m.tokenOf(addOn) != first || !isGood(t, m.AddOnClient(addOn)) {
			t.Errorf("after another %s the token is another one, or does not work", to.what)
		}
	}
	add(addOn + "-later")
}

func TestAddOnCertificateRefresh(t *testing.T) {
	w := newAddOnWorld(t)
	m := w.join("renewal")
	driver := csr.New(csr.Options{Lifetime: 10 * time.Minute})
	m.run(driver)
	certificate := func(addOn string) string { return string(m.secret(addOn).Data["tls.crt"]) }
	add := func(name string) string {
		m.NewAddOn(name, kubeClientItem)
		m.Registered(name, registration.AuthTypeCSR)
		return certificate(name)
	}
	w.Step("at 80 percent of the validity", func(t *testing.T) {
		first := add("ages")
		m.set(8 * time.Minute) // of 15, of which 5 were over at the start
		defer m.set(0)
		m.ReconcileAddOn("ages")
		m.UntilAddOn("ages", "it is renewed", func() bool { return certificate("ages") != first })
		if !isGood(t, m.AddOnClient("ages")) || m.requests("ages") != 2 {
			t.Errorf("%d requests", m.requests("ages"))
		}
	})
	w.Step("the Secret is deleted", func(t *testing.T) {
		first := add("deleted")
		if err := m.Local.Delete(t.Context(), m.secret("deleted")); err != nil {
			t.Fatal(err)
		}
		m.UntilAddOn("deleted", "the Secret is back", func() bool { c := certificate("deleted"); return c != "" && c != first })
		if !isGood(t, m.AddOnClient("deleted")) {
			t.Error("the certificate does not work")
		}
	})
	w.Step("a wrong clock does not request in a loop", func(t *testing.T) {
		defer m.set(0)
		for i, ahead := range []time.Duration{8 * time.Minute, 24 * time.Hour, -time.Hour} {
			m.set(ahead)
			name := fmt.Sprintf("clock%d", i)
			add(name)
			for range 20 {
				m.ReconcileAddOn(name)
			}
			if n := m.requests(name); n > 2 {
				t.Errorf("%d requests with a clock that is %s ahead", n, ahead)
			}
		}
	})
	w.Step("the hub restarts its approver", func(*testing.T) {
		w.stopApprover()
		m.NewAddOn("waits", kubeClientItem)
		m.UntilAddOn("waits", "it asks", func() bool { return m.requests("waits") == 1 })
		w.runApprover()
		m.Registered("waits", registration.AuthTypeCSR)
	})
}
