package token_test

import (
	"context"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
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

// Tokens end with their ServiceAccount. The agent requests one of its
// successor.
func TestServiceAccountIsRecreated(t *testing.T) {
	w := newAddOnEnvironment(t)
	m := w.join("recreated")
	m.run(newToken(t, 600))
	m.NewAddOn("addon1", kubeClientItem)
	m.Registered("addon1", registration.AuthTypeToken)
	first, old, account := m.tokenOf("addon1"), m.AddOnClient("addon1"), m.account("addon1")
	regtest.Must(t, m.Admin.Delete(t.Context(), account))
	m.UntilAddOn("addon1", "it has a token of the new ServiceAccount", func() bool {
		uid := string(m.account("addon1").UID)
		return uid != "" && uid != string(account.UID) && string(m.secret("addon1").Data["uid"]) == uid
	})
	m.expectOther(t, "addon1", first)
	stale := &authenticationv1.TokenRequest{ObjectMeta: metav1.ObjectMeta{UID: account.UID}}
	if err := m.Own().SubResource("token").Create(t.Context(), m.account("addon1"), stale); !apierrors.IsConflict(err) {
		t.Errorf("a request for the deleted ServiceAccount: %v", err)
	}
	kubetest.Eventually(t, "the old token is refused", func() bool { return !isGood(t, old) })
	w.Step("a driver that hangs for one add-on delays no other", func(*testing.T) {
		m.run(hanging{newToken(t, 600)})
		m.NewAddOn("hangs", kubeClientItem)
		m.NewAddOn("quick", kubeClientItem)
		m.Registered("quick", registration.AuthTypeToken)
	})
}

// hanging is a driver that waits for ever for one add-on.
type hanging struct{ registration.Driver }

func (d hanging) Next(ctx context.Context, in registration.Input) (registration.Step, error) {
	if in.Addon == "hangs" {
		<-ctx.Done()
		return registration.Step{}, ctx.Err()
	}
	return d.Driver.Next(ctx, in)
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
