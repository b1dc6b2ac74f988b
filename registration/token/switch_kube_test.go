package token_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/token"
)

// Whatever waits or restarts on the way, an add-on keeps the one credential
// until it has the other.
func TestAddOnSwitchesDrivers(t *testing.T) {
	w := newAddOnEnvironment(t)
	m := w.join("switches")
	certificates, tokens := csr.New(csr.Options{}), newToken(t, 0)
	m.run(tokens)
	m.NewAddOn("addon1", kubeClientItem)
	m.Registered("addon1", registration.AuthTypeToken)
	m.Bind("addon1", "system:serviceaccount:switches:switches-addon1-agent",
		registration.AddOnSubject("switches", "addon1", string(m.Secret().Data["agent-name"])).User)
	user := m.useContinuously("addon1")
	w.Step("token to csr, approval is late", func(t *testing.T) {
		w.stopApprover()
		m.run(certificates)
		m.UntilAddOn("addon1", "it asks for a certificate", func() bool {
			return m.requests("addon1") == 1 && m.Items("addon1")[0].Driver == registration.AuthTypeCSR
		})
		m.reconcileAsHub("addon1")
		m.ReconcileAddOn("addon1")
		m.expectKeys(t, "addon1", registration.AuthTypeToken)
		m.expectInfrastructure(t, "addon1")
		user.expectUse(t, "token", 5)
		old := m.AddOnClient("addon1")
		w.runApprover()
		m.Registered("addon1", registration.AuthTypeCSR)
		user.expectUse(t, "tls.crt", 5)
		m.expectKeys(t, "addon1", registration.AuthTypeCSR)
		m.UntilAddOn("addon1", "the hub tears down", func() bool {
			return len(m.infrastructureOf("addon1")) == 0 &&
				meta.FindStatusCondition(addon.StatusOf(m.AddOn("addon1")).Conditions,
					addon.ConditionTokenInfrastructureReady) == nil
		})
		m.expectRemovedAfterwards(t, "addon1")
		kubetest.Eventually(t, "the token is refused", func() bool {
			return apierrors.IsUnauthorized(old.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace(m.Name)))
		})
		user.expectUse(t, "tls.crt", 5)
	})
	w.Step("csr to token, the hub is late", func(t *testing.T) {
		w.stopTokens()
		m.run(tokens)
		m.UntilAddOn("addon1", "it waits", func() bool {
			return m.Says("addon1", "AddonTokenRefreshed") == "False/"+"TokenInfrastructureNotReady"
		})
		m.ReconcileAddOn("addon1")
		m.expectKeys(t, "addon1", registration.AuthTypeCSR)
		user.expectUse(t, "tls.crt", 5)
		w.runTokens()
		m.Registered("addon1", registration.AuthTypeToken)
		m.expectKeys(t, "addon1", registration.AuthTypeToken)
		user.expectUse(t, "token", 5)
	})
	w.Step("back and forth before either is done", func(t *testing.T) {
		w.stopApprover()
		m.run(certificates)
		m.UntilAddOn("addon1", "it declares csr", func() bool {
			return m.Items("addon1")[0].Driver == registration.AuthTypeCSR
		})
		m.run(tokens)
		m.UntilAddOn("addon1", "it declares token", func() bool {
			return m.Items("addon1")[0].Driver == registration.AuthTypeToken
		})
		m.Registered("addon1", registration.AuthTypeToken)
		m.expectKeys(t, "addon1", registration.AuthTypeToken)
		w.runApprover()
		m.UntilAddOn("addon1", "the token is reported", func() bool {
			return m.Says("addon1", "AddonTokenRefreshed") == "True/"+"AddonTokenRefreshed"
		})
		user.expectUse(t, "token", 5)
	})
	w.Step("the add-on was never without access", func(t *testing.T) {
		user.stop()
		t.Logf("uses %v", user.uses)
		for _, failure := range user.failures {
			t.Error(failure)
		}
	})
}

// reconcileAsHub runs the hub's half once with an administrator's rights, so
// that a test knows that it ran.
func (m *addOnMember) reconcileAsHub(addOn string) {
	m.T.Helper()
	hub, err := token.NewHub(token.HubOptions{Client: m.Admin, Reader: m.Admin})
	if err == nil {
		_, err = hub.Reconcile(m.T.Context(),
			reconcile.Request{NamespacedName: client.ObjectKey{Namespace: m.Name, Name: addOn}})
	}
	regtest.Must(m.T, err)
}

// expectRemovedAfterwards expects by the audit logs that the ServiceAccount
// went after the last write of the Secret, and after the agent had withdrawn
// its condition.
func (m *addOnMember) expectRemovedAfterwards(t *testing.T, addOn string) {
	t.Helper()
	var removed, stored, withdrawn time.Time
	for _, r := range m.Hub.Audit(t, regtest.HubUser) {
		if r.Verb == "delete" && r.Resource == "serviceaccounts" && r.Namespace == m.Name && r.Name == m.Name+"-"+addOn+
			"-agent" {
			removed = r.Time
		}
	}
	for _, r := range m.Managed.Audit(t, "system:serviceaccount:"+m.Namespace+":"+m.Account) {
		if r.Verb == "update" && r.Resource == "secrets" && r.Name == addOn+"-hub-kubeconfig" {
			stored = r.Time
		}
	}
	for _, r := range m.Hub.Audit(t, m.User()) {
		if r.Verb == "patch" && r.Resource == "managedclusteraddons" && r.Subresource == "status" && r.Name == addOn {
			withdrawn = r.Time
		}
	}
	if removed.IsZero() || stored.IsZero() || !removed.After(stored) || !removed.After(withdrawn) {
		t.Errorf("stored %s, withdrawn %s, removed %s", stored, withdrawn, removed)
	}
}

// addOnUser is an add-on that uses its right all the time, with what is in its
// Secret.
type addOnUser struct {
	stop     func()
	mu       sync.Mutex
	uses     map[string]int // by key of the Secret
	failures []string
}

func (m *addOnMember) useContinuously(addOn string) *addOnUser {
	t := m.T
	u := &addOnUser{uses: map[string]int{}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	local, key := regtest.NewClient(t, m.Managed.Config()),
		client.ObjectKey{Namespace: m.AddOnNamespace(), Name: addOn + "-hub-kubeconfig"}
	scheme, namespace := regtest.Scheme(t), m.Name
	use := func(secret *corev1.Secret) (version string, err error) {
		if err := local.Get(ctx, key, secret); err != nil {
			return "", fmt.Errorf("no Secret: %w", err)
		}
		config, err := regtest.CredentialOf(secret)
		if err != nil {
			return secret.ResourceVersion, err
		}
		c, err := client.New(config, client.Options{Scheme: scheme})
		if err == nil {
			err = c.List(ctx, &corev1.ConfigMapList{}, client.InNamespace(namespace))
		}
		return secret.ResourceVersion, err
	}
	go func() {
		defer close(done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for failed := ""; ctx.Err() == nil; <-tick.C {
			secret := &corev1.Secret{}
			version, err := use(secret)
			switch {
			case ctx.Err() != nil:
			case err == nil:
				failed = ""
				u.record(secret)
			case failed == version: // a credential that was replaced meanwhile may fail
				u.fail(fmt.Sprintf("with the Secret of version %s: %v", version, err))
			default:
				failed = version
			}
		}
	}()
	u.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(u.stop)
	return u
}

func (u *addOnUser) record(secret *corev1.Secret) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, key := range []string{"token", "tls.crt"} {
		if len(secret.Data[key]) > 0 {
			u.uses[key]++
		}
	}
}

func (u *addOnUser) fail(what string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !slices.Contains(u.failures, what) {
		u.failures = append(u.failures, what)
	}
}

// expectUse waits for more successful uses of one key.
func (u *addOnUser) expectUse(t *testing.T, key string, more int) {
	t.Helper()
	count := func() int {
		u.mu.Lock()
		defer u.mu.Unlock()
		return u.uses[key]
	}
	before := count()
	kubetest.Eventually(t, "the add-on uses its "+key, func() bool { return count() >= before+more })
}
