package token_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/token"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

// A second cluster trusts the issuer of the first one: a ServiceAccount of the
// first one acts in the second one, through a ConfigMap that names it, and goes
// on when its token is replaced.
func TestRemoteCluster(t *testing.T) {
	hub := kubetest.Start(t)
	caFile := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(caFile, hub.Config().CAData, 0o600); err != nil {
		t.Fatal(err)
	}
	const audience = "https://remote.example"
	remote := kubetest.StartNew(t,
		kubetest.Flag{Name: "oidc-issuer-url", Value: hub.IssuerURL()},
		kubetest.Flag{Name: "oidc-client-id", Value: audience},
		kubetest.Flag{Name: "oidc-ca-file", Value: caFile},
		kubetest.Flag{Name: "oidc-signing-algs", Value: "ES256,RS256"},
		kubetest.Flag{Name: "oidc-username-prefix", Value: "hub:"})
	namespace := hub.Namespace(t)
	app := "hub:system:serviceaccount:" + namespace + ":app"
	grant(t, remote, app, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"},
		Verbs: []string{"list"}})

	user := "controller-of-remote-cluster"
	c, err := client.New(hub.User(t, user, "",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts", "configmaps"},
			Verbs: []string{"get"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{"create"}}),
		client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, obj := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "app"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cluster"}, Data: map[string]string{
			"provider": "generic", "address": remote.Config().Host, "ca.crt": string(remote.Config().CAData),
			"serviceAccountName": "app", "audiences": "- " + audience}},
	} {
		if err := hub.Client().Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	providers, err := auth.NewProviderSet(&token.Provider{})
	if err != nil {
		t.Fatal(err)
	}
	// Credentials count as old after a second, so that several are used up
	// here.
	tokens, err := cache.NewTokenCache(10, cache.WithMaxDuration(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer tokens.Close()
	config, err := auth.GetClusterConfigFromConfigMap(t.Context(), providers,
		client.ObjectKey{Namespace: namespace, Name: "cluster"}, c,
		auth.WithCache(tokens, cache.InvolvedObject{Kind: "Kustomization", Namespace: namespace, Name: "k"}),
		auth.WithPolicy(auth.Policy{Audiences: []string{audience}}))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	there, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(time.Minute)
	for err = there.List(t.Context(), &corev1.NamespaceList{}); err != nil; err = there.List(t.Context(),
		&corev1.NamespaceList{}) {
		// The API server gets the issuer's keys in the background and refuses
		// every token until it has them.
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	requests := func() (n int) {
		for _, r := range hub.Audit(t, user) {
			if r.Verb == "create" && r.Subresource == "token" {
				n++
			}
		}
		return n
	}
	for requests() < 3 {
		if err := there.List(t.Context(), &corev1.NamespaceList{}); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(end) {
			t.Fatalf("%d tokens in a minute", requests())
		}
	}
	if err := there.List(t.Context(), &corev1.SecretList{}); err == nil {
		t.Error("it may do more than it was granted")
	}
	checkImpersonation(t, remote, config, app)
}

// checkImpersonation acts as a ServiceAccount of the remote cluster, as Flux
// does for spec.serviceAccountName. The user needs the right to impersonate it.
func checkImpersonation(t *testing.T, remote *kubetest.Cluster, config *rest.Config, user string) {
	t.Helper()
	const deployer = "system:serviceaccount:default:deployer"
	grant(t, remote, deployer, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"},
		Verbs: []string{"list"}})
	acting := rest.CopyConfig(config)
	acting.Impersonate.UserName = deployer
	there, err := client.New(acting, client.Options{Mapper: remote.Client().RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	if err := there.List(t.Context(), &corev1.ConfigMapList{}); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), "cannot impersonate") {
		t.Errorf("without the right to impersonate: %v", err)
	}
	grant(t, remote, user, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts"},
		ResourceNames: []string{"deployer"}, Verbs: []string{"impersonate"}})
	kubetest.Eventually(t, "list ConfigMaps as the ServiceAccount", func() bool {
		return there.List(t.Context(), &corev1.ConfigMapList{}) == nil
	})
	if err := there.List(t.Context(), &corev1.NamespaceList{}); !apierrors.IsForbidden(err) {
		t.Errorf("the user's own rights count: %v", err)
	}
}

// grant gives a user of the cluster a right.
func grant(t *testing.T, cluster *kubetest.Cluster, user string, rule rbacv1.PolicyRule) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: "test:" + rule.Resources[0]}
	role := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}}
	for _, obj := range []client.Object{role, binding} {
		if err := cluster.Client().Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
}
