package hub_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/manifests"
	"github.com/workloadid/workloadid/registration/ocm"
)

const (
	clusterGroup  = "cluster.open-cluster-management.io"
	registerGroup = "register.open-cluster-management.io"
	workGroup     = "work.open-cluster-management.io"
	csrGroup      = certificatesv1.GroupName
	clusterSet    = clusterGroup + "/clusterset"
)

// rights are some verbs on one resource, as an access review asks for them.
type rights struct{ verbs, group, resource, namespace, name string }

// klusterletRights are the 24 rights that a klusterlet checks before it uses
// the credential of its cluster.
func klusterletRights(cluster string) []rights {
	return []rights{
		{"get list watch", csrGroup, "certificatesigningrequests", "", ""},
		{"get list update watch", clusterGroup, "managedclusters", "", cluster},
		{"patch update", clusterGroup, "managedclusters/status", "", cluster},
		{"renew", registerGroup, "managedclusters/clientcertificates", "", ""},
		{"get update", "coordination.k8s.io", "leases", cluster, "managed-cluster-lease"},
		{"create patch update", "", "events", cluster, ""},
		{"create patch update", "events.k8s.io", "events", cluster, ""},
		{"get list watch update", workGroup, "manifestworks", cluster, ""},
		{"patch update", workGroup, "manifestworks/status", cluster, ""},
	}
}

// bootstrapRights are those that a klusterlet checks of its bootstrap
// credential, and those that its informers use.
func bootstrapRights() []rights {
	return []rights{
		{"create get list watch", clusterGroup, "managedclusters", "", ""},
		{"create get list watch", csrGroup, "certificatesigningrequests", "", ""},
	}
}

// foreignRights are those that no agent has.
func foreignRights(neighbour string) []rights {
	return []rights{
		{"list watch update", clusterGroup, "managedclusters", "", ""},
		{"get list watch update patch delete", clusterGroup, "managedclusters", "", neighbour},
		{"patch update", clusterGroup, "managedclusters/status", "", neighbour},
		{"update", clusterGroup, "managedclusters/accept", "", ""},
		{"update", registerGroup, "managedclusters/accept", "", ""},
		{"create", clusterGroup, "managedclustersets/join", "", "other"},
		{"update patch delete", csrGroup, "certificatesigningrequests", "", ""},
		{"update", csrGroup, "certificatesigningrequests/approval", "", ""},
		{"approve", csrGroup, "signers", "", certificatesv1.KubeAPIServerClientSignerName},
		{"get list watch", "", "secrets", "", ""},
		{"get list watch", "", "secrets", neighbour, ""},
		{"get update", "coordination.k8s.io", "leases", neighbour, ocm.LeaseName},
		{"get list watch update", workGroup, "manifestworks", neighbour, ""},
	}
}

// each returns one review for each right.
func each(all []rights) (reviews []authorizationv1.ResourceAttributes) {
	for _, r := range all {
		resource, sub, _ := strings.Cut(r.resource, "/")
		for verb := range strings.FieldsSeq(r.verbs) {
			reviews = append(reviews,
				authorizationv1.ResourceAttributes{Verb: verb, Group: r.group, Resource: resource, Subresource: sub,
					Namespace: r.namespace, Name: r.name})
		}
	}
	return reviews
}

// refused returns those rights that the API server says a user lacks, as "verb
// resource/subresource".
func refused(t *testing.T, c client.Client, all []rights) (lacks []string) {
	t.Helper()
	for _, attributes := range each(all) {
		review := &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes}}
		regtest.Must(t, c.Create(t.Context(), review))
		if !review.Status.Allowed {
			lacks = append(lacks, strings.TrimSuffix(attributes.Verb+" "+attributes.Resource+"/"+attributes.Subresource, "/"))
		}
	}
	return lacks
}

// awaitRefused waits until the API server refuses exactly the wanted rights: it
// takes up a change of RBAC with a delay.
func awaitRefused(t *testing.T, c client.Client, all []rights, want ...string) {
	t.Helper()
	var got []string
	kubetest.Eventually(t, fmt.Sprintf("the API server refuses exactly %q", want), func() bool {
		now := refused(t, c, all)
		if !slices.Equal(got, now) {
			got = now
			t.Logf("refused: %q", got)
		}
		return slices.Equal(got, want)
	})
}

// controller returns a client of the hub controller.
func (k *hubKube) controller(*testing.T) client.Client {
	return k.As(regtest.HubUser, "system:serviceaccounts", "system:serviceaccounts:open-cluster-management-hub")
}

// reconcileOnce runs a new hub program for one reconcile of a cluster.
func (k *hubKube) reconcileOnce(t *testing.T, c client.Client, cluster string, ocmAgents bool) error {
	t.Helper()
	h,
		err := hub.New(hub.Options{Client: c, Drivers: []registration.HubDriver{newHubDriver("one", driverAnnotation)},
		Default: "one", OCMAgents: ocmAgents})
	regtest.Must(t, err)
	_, err = h.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: cluster}})
	return err
}

func TestAgentsOfOCM(t *testing.T) {
	k := startReleased(t)
	controller := k.controller(t)
	for _, name := range []string{"ocm1", "ocm10"} {
		regtest.Must(t, k.Admin.Create(t.Context(), managedCluster(name, accept)))
		regtest.Must(t, k.reconcileOnce(t, controller, name, false))
	}
	added := []string{"list certificatesigningrequests", "watch certificatesigningrequests", "list managedclusters",
		"update managedclusters", "watch managedclusters",
		"update managedclusters/status", "renew managedclusters/clientcertificates"}
	agent, bootstrap, account := k.AsAgent("ocm1"), k.bootstrap(t), k.As(ocm.BootstrapUser)
	if n := len(each(klusterletRights("ocm1"))); n != 24 {
		t.Fatalf("a klusterlet checks %d rights", n)
	}
	withoutOption := func(t *testing.T) { awaitRefused(t, agent, klusterletRights("ocm1"), added...) }
	k.Step("an agent without the option", withoutOption)
	k.Step("a bootstrap user without the option", func(t *testing.T) {
		for _, c := range []client.Client{bootstrap, account} {
			awaitRefused(t, c, bootstrapRights(), "list managedclusters", "watch managedclusters",
				"list certificatesigningrequests", "watch certificatesigningrequests")
		}
	})
	k.Step("the option without the manifest", func(t *testing.T) {
		if err := k.reconcileOnce(t, controller, "ocm1", true); !apierrors.IsForbidden(err) {
			t.Errorf("the error is %v, want Forbidden", err)
		}
		withoutOption(t)
	})
	k.Step("each verb of the manifest is needed", k.testOptionVerbs)
	kubetest.Apply(t, k.Admin, manifests.OCMAgentsRBAC())
	t.Cleanup(func() { kubetest.Delete(t, k.Admin, manifests.OCMAgentsRBAC()) })
	k.Step("a bootstrap user with the option", func(t *testing.T) {
		for _, c := range []client.Client{bootstrap, account} {
			awaitRefused(t, c, bootstrapRights())
		}
	})
	k.Step("the option repairs the role of a cluster that was accepted before", func(t *testing.T) {
		kubetest.Eventually(t, "the hub may hand that out", func() bool {
			return k.reconcileOnce(t, controller, "ocm1", true) == nil
		})
		awaitRefused(t, agent, klusterletRights("ocm1"))
	})
	k.Step("what stays refused to an agent", func(t *testing.T) {
		foreign := foreignRights("ocm10")
		if got, want := len(refused(t, agent, foreign)), len(each(foreign)); got != want {
			t.Errorf("refused are %d rights, want %d: %q", got, want, refused(t, agent, foreign))
		}
	})
	k.Step("a hub without the option takes the rights away", func(t *testing.T) {
		regtest.Must(t, k.reconcileOnce(t, controller, "ocm1", false))
		withoutOption(t)
	})
}

// testOptionVerbs takes away one verb of the hub controller at a time.
func (k *hubKube) testOptionVerbs(t *testing.T) {
	least := regtest.RulesOf(t, manifests.HubRBAC(), "open-cluster-management:hub:registration")
	own := regtest.RulesOf(t, manifests.OCMAgentsRBAC(), "open-cluster-management:hub:ocm-agents")
	n := 0
	try := func(rules []rbacv1.PolicyRule) error {
		n++
		name := fmt.Sprintf("option-%d", n)
		regtest.Must(t, k.Admin.Create(t.Context(), managedCluster(name, accept)))
		return k.reconcileOnce(t, regtest.NewClient(t, k.Hub.User(t, name, "", append(slices.Clone(least), rules...)...)),
			name, true)
	}
	if err := try(own); err != nil {
		t.Errorf("with all verbs: %v", err)
	}
	for i, rule := range own {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				k.Step(verb+" "+resource, func(t *testing.T) {
					if err := try(without(own, i, resource, verb)); !apierrors.IsForbidden(err) {
						t.Errorf("without the verb the error is %v", err)
					}
				})
			}
		}
	}
}

// OCM's registration webhook labels each ManagedCluster that has no cluster
// set, whoever writes it, then asks whether that user may. Our policies see the
// labelled object.
func TestWebhookOfOCM(t *testing.T) {
	k := startReleased(t)
	regtest.Must(t, k.Admin.Create(t.Context(), managedCluster("hooked", accept)))
	controller, bootstrap := k.controller(t), k.bootstrap(t)
	regtest.Must(t, k.reconcileOnce(t, controller, "hooked", false))
	users := map[string]client.Client{"bootstrap user": bootstrap,
		"bootstrap ServiceAccount": k.As(ocm.BootstrapUser), "hub": controller, "agent": k.AsAgent("hooked")}
	for name, c := range users {
		k.Step("the cluster set of a "+name, func(t *testing.T) {
			awaitRefused(t, c, []rights{{"create", clusterGroup, "managedclustersets/join", "", "default"}})
			if got := refused(t, c, []rights{{"create", clusterGroup, "managedclustersets/join", "", "other"},
				{"create", clusterGroup, "managedclustersets/join", "", ""}}); len(got) != 2 {
				t.Errorf("of two other rights are refused: %q", got)
			}
		})
	}
	k.Step("acceptance by the hub", func(t *testing.T) {
		awaitRefused(t, controller, []rights{{"update", registerGroup, "managedclusters/accept", "", "hooked"}})
	})
	k.Step("labels of a bootstrap user", func(t *testing.T) { k.testLabels(t, bootstrap) })
}

func (k *hubKube) testLabels(_ *testing.T, bootstrap client.Client) {
	type labels = map[string]string
	none, def, other := labels(nil), labels{clusterSet: "default"}, labels{clusterSet: "other"}
	for _, test := range []struct {
		name        string
		before, now labels
		update      bool
		allowed     bool
	}{
		{"creation without labels", none, none, false, true},
		{"creation with the default cluster set", none, def, false, true},
		{"creation with another cluster set", none, other, false, false},
		{"creation with an empty cluster set", none, labels{clusterSet: ""}, false, false},
		{"creation with another label", none, labels{"a": "b"}, false, false},
		{"creation with the default cluster set and another label", none, labels{clusterSet: "default", "a": "b"},
			false, false},
		{"creation with another label of that value", none, labels{clusterGroup + "/clustersets": "default"}, false, false},
		{"an update without labels", none, none, true, true},
		{"an update that keeps the labels", labels{clusterSet: "other", "a": "b"}, labels{clusterSet: "other", "a": "b"},
			true, true},
		{"an update that adds the default cluster set", none, def, true, true},
		{"an update that adds it beside another label", labels{"a": "b"}, labels{"a": "b", clusterSet: "default"},
			true, true},
		{"an update that fills it in", labels{clusterSet: ""}, def, true, true},
		{"an update that adds another cluster set", none, other, true, false},
		{"an update that moves the cluster", other, def, true, false},
		{"an update that removes the cluster set", def, none, true, false},
		{"an update that adds it and another label", none, labels{clusterSet: "default", "a": "b"}, true, false},
		{"an update that adds it and changes another label", labels{"a": "b"}, labels{"a": "c", clusterSet: "default"},
			true, false},
		{"an update that adds it and removes another label", labels{"a": "b"}, def, true, false},
	} {
		k.Step(test.name, func(t *testing.T) {
			cluster := managedCluster("labelled", func(m *ocm.ManagedCluster) { m.Labels = maps.Clone(test.now) })
			var err error
			if test.update {
				cluster.Labels = maps.Clone(test.before)
				regtest.Must(t, k.Admin.Create(t.Context(), cluster))
				defer func() {
					if err := k.Admin.Delete(t.Context(), cluster); err != nil {
						t.Error(err)
					}
				}()
				base := cluster.DeepCopy()
				cluster.Labels, cluster.Annotations = maps.Clone(test.now), map[string]string{"claim": "mine"}
				err = bootstrap.Patch(t.Context(), cluster, client.MergeFrom(base))
			} else {
				err = bootstrap.Create(t.Context(), cluster, client.DryRunAll)
			}
			if test.allowed && err != nil ||
				!test.allowed && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "labels")) {
				t.Errorf("allowed %t: the error is %v", test.allowed, err)
			}
		})
	}
	k.Step("an update of an accepted cluster", func(t *testing.T) {
		err := bootstrap.Patch(t.Context(), managedCluster("hooked"),
			client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:"default"}}}`, clusterSet)))
		if err == nil || !strings.Contains(err.Error(), "accepted") {
			t.Errorf("the error is %v", err)
		}
	})
}
