package authtest_test

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cloudtest"
)

func TestVault(t *testing.T) {
	issuer, err := cloudtest.NewIssuer(cloudtest.IssuerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	server := startVault(t, issuer)
	account := func(name, role string) *corev1.ServiceAccount {
		return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: name,
			Annotations: map[string]string{RoleAnnotation: role}}}
	}
	key := func(name string) client.ObjectKey { return client.ObjectKey{Namespace: "tenant-a", Name: name} }
	authtest.RunConformance(t, authtest.Harness{
		New:     func(*testing.T) auth.Provider { return &Vault{Address: server.URL} },
		Options: []auth.Option{auth.WithHTTPClient(server.Client())},
		Client: issuer.Client(account("app", "app"), account("second", "second"), account("thief", "app"),
			account("typo", "no role!")),
		Good: key("app"), Other: key("second"), Refused: key("thief"), Malformed: key("typo"),
		Fields: map[string]any{"Address": "https://other.example"}, NoRegions: true,
		Break: server.fail, Calls: server.count,
		Secrets: func(t *testing.T, token auth.Token) []string {
			v, err := FromToken(token)
			if err != nil {
				t.Fatal(err)
			}
			return []string{v.Reveal()}
		},
	})
}

// fakeVault has the roles "app" and "second". Each is bound to the
// ServiceAccount of that name in the namespace tenant-a.
type fakeVault struct {
	*httptest.Server
	issuer  *cloudtest.Issuer
	calls   atomic.Int64
	failing atomic.Value // of provider.Reason
	closing chan struct{}
}

func startVault(t *testing.T, issuer *cloudtest.Issuer) *fakeVault {
	t.Helper()
	v := &fakeVault{issuer: issuer, closing: make(chan struct{})}
	v.Server = httptest.NewTLSServer(v)
	t.Cleanup(func() {
		close(v.closing)
		v.Close()
	})
	return v
}

func (v *fakeVault) count() int { return int(v.calls.Load()) }

func (v *fakeVault) fail(t *testing.T, how provider.Reason) {
	t.Helper()
	v.failing.Store(how)
	t.Cleanup(func() { v.failing.Store(provider.Reason("")) })
}

func (v *fakeVault) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.calls.Add(1)
	how, _ := v.failing.Load().(provider.Reason)
	switch how {
	case auth.ErrThrottled:
		w.WriteHeader(http.StatusTooManyRequests)
	case auth.ErrUnavailable:
		w.WriteHeader(http.StatusServiceUnavailable)
	case authtest.Hang:
		select {
		case <-r.Context().Done():
		case <-v.closing:
		}
	default:
		v.logIn(w, r)
	}
}

func (v *fakeVault) logIn(w http.ResponseWriter, r *http.Request) {
	var login struct{ Role, JWT string }
	if r.URL.Path != "/v1/auth/jwt/login" || json.NewDecoder(r.Body).Decode(&login) != nil ||
		!v.trusts(login.JWT, login.Role) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"errors":["error validating token: ` + login.JWT + `"]}`))
		return
	}
	_, _ = w.Write([]byte(`{"auth":{"client_token":"hvs.` + rand.Text() + `","lease_duration":3600}}`))
}

func (v *fakeVault) trusts(jwt, role string) bool {
	sa, err := v.issuer.Verify(jwt, "vault")
	return err == nil && sa == client.ObjectKey{Namespace: "tenant-a", Name: role} && (role == "app" || role == "second")
}
