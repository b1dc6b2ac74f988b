package awsirsa_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/awsirsa"
)

// useAuthMap creates aws-auth, then changes it.
func useAuthMap(t *testing.T, hub *kubetest.Cluster, c client.Client) error {
	t.Helper()
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "aws-auth"}}
	regtest.Must(t, client.IgnoreNotFound(hub.Client().Delete(t.Context(), configMap)))
	h := newHub(t, newCloud(), withAWSAuth(c))
	if _, err := h.Grant(t.Context(), "shop1", managedARN); err != nil {
		return err
	}
	return h.Revoke(t.Context(), "shop1", managedARN)
}

func TestHubNeedsEachRightToAWSAuth(t *testing.T) {
	hub, rights := kubetest.Start(t),
		regtest.VerbsOf(regtest.RulesOf(t, awsirsa.AWSAuthRBAC(), "open-cluster-management:hub:aws-auth"))
	if err := useAuthMap(t, hub, regtest.NewClient(t, hub.User(t, "mapper", "kube-system", rights...))); err != nil {
		t.Errorf("with all: %v", err)
	}
	for i, right := range rights {
		t.Run("without "+right.Verbs[0], func(t *testing.T) {
			less := slices.Delete(slices.Clone(rights), i, i+1)
			if err := useAuthMap(t, hub,
				regtest.NewClient(t, hub.User(t, fmt.Sprint("mapper-", i), "kube-system", less...))); !apierrors.IsForbidden(err) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestHubReachesNoOtherConfigMap(t *testing.T) {
	hub := kubetest.Start(t)
	c := regtest.NewClient(t,
		hub.User(t, "reader", "kube-system",
			regtest.RulesOf(t, awsirsa.AWSAuthRBAC(), "open-cluster-management:hub:aws-auth")...))
	other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system",
		Name: "extension-apiserver-authentication"}}
	for what, err := range map[string]error{
		"get":    c.Get(t.Context(), client.ObjectKeyFromObject(other), other.DeepCopy()),
		"update": c.Update(t.Context(), other.DeepCopy()),
		"delete": c.Delete(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "aws-auth"}}),
		"list": c.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace("kube-system")),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
