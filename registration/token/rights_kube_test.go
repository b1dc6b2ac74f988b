package token_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/manifests"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/token"
)

// The right to hand out rights to tokens is no right to tokens: the hub
// controller's credential opens nothing outside of clusters.
func TestHubControllerIsConfined(t *testing.T) {
	k := newKube(t)
	k.accept("confined")
	own := regtest.NewClient(t, k.config)
	tokens := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"},
		Verbs: []string{"create"}}}
	itself := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "open-cluster-management-hub",
		Name: "registration-controller-sa"}}
	in := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	request := func(namespace string) error {
		return own.SubResource("token").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: in(namespace, "default")},
			&authenticationv1.TokenRequest{})
	}
	for _, namespace := range []string{"kube-system", "default", "confined"} {
		kubetest.Eventually(t, "there is a default ServiceAccount", func() bool {
			err := k.Admin.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: in(namespace, "default")})
			return err == nil || apierrors.IsAlreadyExists(err)
		})
	}
	attacks := map[string]func() error{
		"request a token in kube-system": func() error { return request("kube-system") },
		"request a token in a cluster":   func() error { return request("confined") },
		"a Role in kube-system": func() error {
			return own.Create(t.Context(), &rbacv1.Role{ObjectMeta: in("kube-system", "attack"), Rules: tokens})
		},
		"a ServiceAccount in kube-system": func() error {
			return own.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: in("kube-system", "attack")})
		},
		"delete one of kube-system": func() error {
			return own.Delete(t.Context(), &corev1.ServiceAccount{ObjectMeta: in("kube-system", "default")})
		},
		"a RoleBinding in kube-system": func() error {
			return own.Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: in("kube-system", "attack"), Subjects: itself,
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
					Name: "open-cluster-management:hub:token"}})
		},
		"a ClusterRole for tokens": func() error {
			return own.Create(t.Context(),
				&rbacv1.ClusterRole{ObjectMeta: in("", "open-cluster-management:managedcluster:attack"), Rules: tokens})
		},
		"its own ClusterRole for all": func() error {
			return own.Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: in("", "attack"),
				Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:authenticated"}},
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
					Name: "open-cluster-management:hub:token"}})
		},
		"make kube-system a cluster": func() error {
			return own.Patch(t.Context(), &corev1.Namespace{ObjectMeta: in("", "kube-system")},
				client.RawPatch("application/merge-patch+json",
					[]byte(`{"metadata":{"labels":{"open-cluster-management.io/cluster-name":"kube-system"}}}`)))
		},
		"escalate": func() error {
			return own.Create(t.Context(), &rbacv1.Role{ObjectMeta: in("confined", "attack"),
				Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}}})
		},
	}
	for name, attack := range attacks {
		t.Run(name, func(t *testing.T) {
			if err := attack(); !apierrors.IsForbidden(err) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestHubNeedsEachRight(t *testing.T) {
	k := newHub(t)
	k.runHub(1)
	k.accept("rights")
	k.stopHub()
	hub := regtest.RulesOf(t, manifests.HubRBAC(), "open-cluster-management:hub:registration")
	own := regtest.VerbsOf(regtest.RulesOf(t, manifests.TokenRBAC(), "open-cluster-management:hub:token"))
	try := func(t *testing.T, name string, own []rbacv1.PolicyRule) error {
		return k.provideAs(t, k.Hub.User(t, "hub-"+name, "", append(slices.Clone(hub), own...)...), name)
	}
	t.Run("all", func(t *testing.T) {
		if err := try(t, "all", own); err != nil {
			t.Error(err)
		}
	})
	for i, rule := range own {
		t.Run(fmt.Sprintf("without %s %s", rule.Verbs[0], rule.Resources[0]), func(t *testing.T) {
			if err := try(t, fmt.Sprintf("without-%d", i), slices.Delete(slices.Clone(own), i, i+1)); err == nil {
				t.Error("it works")
			}
		})
	}
}

// provideAs does what the hub does in a manager, with its informers: it
// provides, repairs and tears down.
func (k *kube) provideAs(t *testing.T, config *rest.Config, name string) error {
	t.Helper()
	config.QPS = -1
	c, err := client.NewWithWatch(config, client.Options{Scheme: regtest.Scheme(t)})
	regtest.Must(t, err)
	for _, list := range []client.ObjectList{&addon.ManagedClusterAddOnList{}, &corev1.ServiceAccountList{},
		&rbacv1.RoleList{}, &rbacv1.RoleBindingList{}} {
		if err := c.List(t.Context(), list); err != nil {
			return err
		}
		w, err := c.Watch(t.Context(), list)
		if err != nil {
			return err
		}
		w.Stop()
	}
	a := addOn("rights", name)
	a.UID = ""
	regtest.Must(t, k.Admin.Create(t.Context(), a))
	declare := func(driver string) {
		a.Status.Registrations = []addon.RegistrationConfig{tokenItem("system:serviceaccount:rights:" + name + "-agent")}
		a.Status.Registrations[0].KubeClient.Driver = driver
		regtest.Must(t, k.Admin.Status().Update(t.Context(), a))
	}
	hub, err := token.NewHub(token.HubOptions{Client: c, Reader: c})
	regtest.Must(t, err)
	reconcileOnce := func(ready bool) error {
		if _, err := hub.Reconcile(t.Context(),
			reconcile.Request{NamespacedName: client.ObjectKeyFromObject(a)}); err != nil {
			return err
		}
		regtest.Must(t, k.Admin.Get(t.Context(), client.ObjectKeyFromObject(a), a))
		if n := len(a.Status.Conditions); (n == 1 && a.Status.Conditions[0].Status == "True") != ready {
			return fmt.Errorf("conditions %+v", a.Status.Conditions)
		}
		return nil
	}
	declare(registration.AuthTypeToken)
	if err := reconcileOnce(true); err != nil {
		return err
	}
	role := &rbacv1.Role{}
	regtest.Must(t, k.Admin.Get(t.Context(), client.ObjectKey{Namespace: "rights", Name: name + "-token-role"}, role))
	role.Rules = nil
	regtest.Must(t, k.Admin.Update(t.Context(), role))
	if err := reconcileOnce(true); err != nil {
		return err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "rights", Name: name + "-agent"}}
	regtest.Must(t,
		k.Admin.Patch(t.Context(), account,
			client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"ownerReferences":null}}`))))
	if err := reconcileOnce(true); err != nil {
		return err
	}
	declare(registration.AuthTypeCSR)
	if err := reconcileOnce(false); err != nil {
		return err
	}
	if left := there(t, k.Admin, "rights"); slices.ContainsFunc(left, func(s string) bool {
		return strings.Contains(s, "/"+name+"-")
	}) {
		return fmt.Errorf("left %q", left)
	}
	return nil
}

// writes returns what the hub controller has written so far.
func (k *kube) writes() (all []string) {
	k.T.Helper()
	for _, r := range k.Hub.Audit(k.T, regtest.HubUser) {
		if r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" && r.Code < 400 {
			all = append(all, fmt.Sprintf("%s %s/%s %s/%s", r.Verb, r.Resource, r.Subresource, r.Namespace, r.Name))
		}
	}
	return all
}
