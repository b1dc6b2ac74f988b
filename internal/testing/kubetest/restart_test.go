package kubetest_test

import (
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

// What was there before a restart is good afterwards: objects, users with their rules, and tokens.
func TestRestart(t *testing.T) {
	cluster := kubetest.StartNew(t)
	rule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"get"}}
	reader, err := client.New(cluster.User(t, "reader", "", rule), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace(t), Name: "app"}}
	if err := cluster.Client().Create(t.Context(), sa); err != nil {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{}
	if err := cluster.Client().SubResource("token").Create(t.Context(), sa, request); err != nil {
		t.Fatal(err)
	}
	read := func() (*corev1.ServiceAccount, error) {
		found := &corev1.ServiceAccount{}
		return found, reader.Get(t.Context(), client.ObjectKeyFromObject(sa), found)
	}
	down := false
	cluster.Restart(t, func() {
		_, err := read()
		down = err != nil
	})
	if !down {
		t.Error("the API server answers although it was stopped")
	}
	if found, err := read(); err != nil || found.UID != sa.UID {
		t.Errorf("after the restart: %q instead of %q, %v", found.UID, sa.UID, err)
	}
	token, err := jwt.ParseSigned(request.Status.Token, []jose.SignatureAlgorithm{jose.RS256, jose.ES256})
	if err != nil {
		t.Fatal(err)
	}
	if err := token.Claims(keysOf(t, cluster), &jwt.Claims{}); err != nil {
		t.Errorf("a token from before the restart: %v", err)
	}
	cluster.Restart(t, nil)
	if _, err := read(); err != nil {
		t.Errorf("after two restarts: %v", err)
	}
}
