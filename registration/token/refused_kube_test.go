package token_test

import (
	"context"
	"fmt"
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
		kubetest.Eventually(t, "the policy knows", func() bool { return apierrors.IsInvalid(ask(m, own, foreign)) })
		if err := ask(m, own, authenticationv1.TokenRequestSpec{}); err != nil {
			t.Error(err)
		}
	})
	w.Step("another cap", func(t *testing.T) {
		configure(`{"data":{"maxExpirationSeconds":"31536001"}}`)
		defer configure(`{"data":{"maxExpirationSeconds":"31536000"}}`)
		kubetest.Eventually(t, "the policy knows", func() bool { return ask(m, own, lifetime(capped+1)) == nil })
	})
	w.Step("an unknown driver and an unknown type are refused by the API server", func(t *testing.T) {
		for _, patch := range []string{`{"status":{"registrations":[{"type":"kubeClient","kubeClient":{"driver":"grpc"}}]}}`,
			`{"status":{"registrations":[{"type":"kubeServer"}]}}`} {
			if err := m.Own().Status().Patch(t.Context(), m.AddOn("addon1"),
				client.RawPatch("application/merge-patch+json", []byte(patch))); !apierrors.IsInvalid(err) {
				t.Errorf("%s: got %v, want that it is invalid", patch, err)
			}
		}
	})
}
