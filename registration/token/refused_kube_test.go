package token_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// What a person has to mend is a condition. Other add-ons are not affected, and
// what is mended works.
func TestRefusedAddOns(t *testing.T) {
	w := newAddOnEnvironment(t)
	m, victim := w.join("refused"), w.join("refused-victim")
	says := func(t *testing.T, addOn, kind, want string, parts ...string) {
		t.Helper()
		m.UntilAddOn(addOn, "the condition says "+want, func() bool { return m.Says(addOn, kind) == want })
		for _, part := range parts {
			if message := m.Condition(addOn, kind).Message; !strings.Contains(message, part) {
				t.Errorf("message %q lacks %q", message, part)
			}
		}
	}
	const ready = addon.ConditionTokenInfrastructureReady
	w.Step("another cluster's ServiceAccount as subject", func(t *testing.T) {
		const foreign = "system:serviceaccount:refused-victim:refused-victim-stolen-agent"
		m.NewAddOn("stolen", kubeClientItem)
		// with the cluster's credential
		err := addon.PatchStatus(t.Context(), m.Own(), m.AddOn("stolen"), func(s *addon.Status) bool {
			s.Items[0].Driver, s.Items[0].Subject.User = registration.AuthTypeToken, foreign
			return true
		})
		regtest.Must(t, err)
		says(t, "stolen", ready, "False/"+"InvalidSubject", foreign, "refused-stolen-agent")
		if got := append(m.infrastructureOf("stolen"), victim.infrastructureOf("stolen")...); len(got) > 0 {
			t.Errorf("there are %q", got)
		}
		m.run(newToken(t, 0))
		m.Registered("stolen", registration.AuthTypeToken)
		says(t, "stolen", ready, "True/"+ocm.ReasonTokensReady)
	})
	w.Step("an unknown driver and an unknown type are refused by the API server", func(t *testing.T) {
		m.NewAddOn("unknown", kubeClientItem)
		for _, patch := range []string{`{"status":{"registrations":[{"type":"kubeClient","kubeClient":{"driver":"grpc"}}]}}`,
			`{"status":{"registrations":[{"type":"kubeServer"}]}}`} {
			if err := m.Own().Status().Patch(t.Context(), m.AddOn("unknown"),
				client.RawPatch("application/merge-patch+json", []byte(patch))); !apierrors.IsInvalid(err) {
				t.Errorf("error %v", err)
			}
		}
		m.Registered("unknown", registration.AuthTypeToken)
	})
}

// The cluster's rights and the shipped policy bound the tokens that an agent
// may request, whatever its driver wishes.
func TestBoundsOfTokenRequests(t *testing.T) {
	w := newAddOnEnvironment(t)
	m, neighbour := w.join("bounds"), w.join("bounds-neighbour")
	m.run(newToken(t, 0))
	m.NewAddOn("addon1", kubeClientItem)
	m.Registered("addon1", registration.AuthTypeToken)
	ask := func(agent *addOnMember, account string, spec authenticationv1.TokenRequestSpec) error {
		sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: m.Name, Name: account}}
		return agent.Own().SubResource("token").Create(t.Context(), sa, &authenticationv1.TokenRequest{Spec: spec})
	}
	lifetime := func(seconds int64) (spec authenticationv1.TokenRequestSpec) {
		spec.ExpirationSeconds = &seconds
		return spec
	}
	const own, capped = "bounds-addon1-agent", 31_536_000
	foreign := authenticationv1.TokenRequestSpec{Audiences: []string{"sts.amazonaws.com"}}
	for _, row := range []struct {
		name    string
		agent   *addOnMember
		account string
		spec    authenticationv1.TokenRequestSpec
		refused func(error) bool
	}{
		{name: "its add-on's ServiceAccount", agent: m, account: own},
		{name: "exactly the cap", agent: m, account: own, spec: lifetime(capped)},
		{name: "over the cap", agent: m, account: own, spec: lifetime(capped + 1), refused: apierrors.IsInvalid},
		{name: "any audience", agent: m, account: own, spec: foreign},
		{name: "another ServiceAccount", agent: m, account: "default", refused: apierrors.IsForbidden},
		{name: "another cluster's agent", agent: neighbour, account: own, refused: apierrors.IsForbidden},
	} {
		t.Run(row.name, func(t *testing.T) {
			if err := ask(row.agent, row.account, row.spec); row.refused == nil && err != nil ||
				row.refused != nil && !row.refused(err) {
				t.Errorf("error %v", err)
			}
		})
	}
	configure := func(data string) {
		t.Helper()
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "open-cluster-management-hub",
			Name: "addon-tokens"}}
		regtest.Must(t,
			m.Admin.Patch(context.WithoutCancel(t.Context()), config,
				client.RawPatch("application/merge-patch+json", []byte(data))))
	}
	w.Step("listed audiences", func(t *testing.T) {
		configure(fmt.Sprintf(`{"data":{"audiences":"vault,%s"}}`, m.Hub.IssuerURL()))
		defer configure(`{"data":{"audiences":""}}`)
		regtest.Eventually(t, "the policy knows", func() bool { return apierrors.IsInvalid(ask(m, own, foreign)) })
		if err := ask(m, own, authenticationv1.TokenRequestSpec{}); err != nil {
			t.Error(err)
		}
	})
	w.Step("another cap", func(t *testing.T) {
		configure(`{"data":{"maxExpirationSeconds":"31536001"}}`)
		defer configure(`{"data":{"maxExpirationSeconds":"31536000"}}`)
		regtest.Eventually(t, "the policy knows", func() bool { return ask(m, own, lifetime(capped+1)) == nil })
	})
}
