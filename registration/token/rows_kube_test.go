package token_test

import (
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/document"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/manifests"
)

// Two of the six combinations of the proposal's table, both agents at once on one
// hub. Package awsirsa tests those of clusters by aws-irsa, and
// TestAddOnSwitchesDrivers those without a relay.
func TestAddOnCombinations(t *testing.T) {
	w := newAddOnEnvironment(t)
	s := w.runSigner()
	w.RelayRights(manifests.RelayConstrainedRBAC())
	w.stopClusters()
	w.runClusters(func(o *hub.Options) { o.Relay = true })
	address := w.RunRelay()
	certificates, tokens := registration.Driver(csr.New(csr.Options{})), registration.Driver(newToken(t, 0))
	rows := []struct {
		name, cluster string
		driver        registration.Driver
		m             *addOnMember
	}{
		{name: "cluster by csr through the relay, add-on by csr", cluster: "row5", driver: certificates},
		{name: "cluster by csr through the relay, add-on by token", cluster: "row6", driver: tokens},
	}
	for i := range rows {
		r := &rows[i]
		r.m = w.joinBy(r.cluster, address)
		r.m.run(r.driver)
		r.m.NewAddOn("search", kubeClientItem, signerItem)
	}
	for _, r := range rows {
		w.Step(r.name, func(t *testing.T) {
			r.m.Registered("search", r.driver.Name())
			r.m.expectKeys(t, "search", r.driver.Name())
			if r.driver == certificates {
				r.m.letRelay(t, "search")
			}
			r.m.ExpectOnlyOwnRights("search")
			r.m.expectSigned(s, "search")
			config, err := regtest.CredentialOf(r.m.secret("search"))
			if err != nil || !strings.HasSuffix(address.Host, strings.TrimPrefix(config.Host, "https://")) {
				t.Errorf("the add-on uses %q, %v, want the relay %q", config.Host, err, address.Host)
			}
		})
	}
	w.Step("no add-on has a right of its namesake in another cluster", func(t *testing.T) {
		for _, from := range rows {
			for _, to := range rows {
				err := from.m.AddOnClient("search").List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace(to.cluster))
				if from.cluster == to.cluster && err != nil || from.cluster != to.cluster && !apierrors.IsForbidden(err) {
					t.Errorf("%s in %s: %v", from.cluster, to.cluster, err)
				}
			}
		}
	})
}

// letRelay lets the relay act as an add-on with a certificate, by the manifest
// that docs/registration.md shows.
func (m *addOnMember) letRelay(t *testing.T, addOn string) {
	t.Helper()
	page := document.Read(t, "docs/registration.md").Section("Relay")
	manifest := strings.NewReplacer("cluster1", m.Name, "search", addOn, "USER",
		m.Items(addOn)[0].Subject.User).Replace(page.Block("yaml", "kind: ClusterRole"))
	if err := m.AddOnClient(addOn).Create(t.Context(),
		&authenticationv1.SelfSubjectReview{}); !apierrors.IsForbidden(err) {
		t.Errorf("the relay acts as an add-on that it has no right to: %v", err)
	}
	m.Apply(m.Admin, manifest)
	kubetest.Eventually(t, "the relay acts as the add-on", func() bool {
		return m.AddOnClient(addOn).Create(t.Context(), &authenticationv1.SelfSubjectReview{}) == nil
	})
}

// expectKeys expects the keys of one driver in the Secret, and none of the
// other's.
func (m *addOnMember) expectKeys(t *testing.T, addOn, driver string) {
	t.Helper()
	want := map[string][]string{registration.AuthTypeCSR: {"tls.crt", "tls.key"},
		registration.AuthTypeToken: {"token", "expiration", "uid"}}[driver]
	want = append(want, "agent-name", "auth-type", "cluster-name", "kubeconfig")
	slices.Sort(want)
	secret := m.secret(addOn)
	if got := regtest.Keys(secret); !slices.Equal(got, want) {
		t.Errorf("keys %q instead of %q", got, want)
	}
}
