package cloudtest_test

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/workloadid/workloadid/internal/jwt"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// Widget is a kind that only a consumer of the package knows.
type Widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
}

func (w *Widget) DeepCopyObject() runtime.Object {
	return &Widget{w.TypeMeta, *w.ObjectMeta.DeepCopy()}
}

func widgetScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	version := schema.GroupVersion{Group: "consumer.example", Version: "v1"}
	scheme.AddKnownTypes(version, &Widget{})
	metav1.AddToGroupVersion(scheme, version)
	return scheme
}

func app() *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app", UID: "uid-1"}}
}

func appPod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "pod", UID: "uid-2"},
		Spec: corev1.PodSpec{ServiceAccountName: "app"}}
}

func boundRequest() *authenticationv1.TokenRequest {
	return &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"vault"},
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "pod", UID: "uid-2"}}}
}

func checkClaims(t *testing.T, token string) {
	t.Helper()
	claims, err := jwt.Parse(token)
	if err != nil || claims.Subject != "system:serviceaccount:tenant-a:app" || len(claims.Audience) != 1 ||
		claims.Audience[0] != "vault" {
		t.Errorf("claims %+v, %v", claims, err)
	}
}

func TestWrapIssuesTokensFromAConsumersFakeClient(t *testing.T) {
	issuer := testenv.Issuer(t)
	c := issuer.Wrap(fake.NewClientBuilder().WithScheme(widgetScheme(t)).WithStatusSubresource(&corev1.Pod{}).WithObjects(
		app(), appPod()).Build())
	request := boundRequest()
	if err := c.SubResource("token").Create(t.Context(), app(), request); err != nil {
		t.Fatal(err)
	}
	checkClaims(t, request.Status.Token)
	widget := &Widget{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "w"}}
	if err := c.Create(t.Context(), widget); err != nil || widget.UID == types.UID("") {
		t.Errorf("UID %q, %v", widget.UID, err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(widget), &Widget{}); err != nil {
		t.Error(err)
	}
	if err := c.SubResource("eviction").Create(t.Context(), appPod(), boundRequest()); err == nil {
		t.Error("another sub-resource was answered with a token")
	}
	missing := app()
	missing.Name = "missing"
	if err := c.SubResource("token").Create(t.Context(), missing, boundRequest()); !apierrors.IsNotFound(err) {
		t.Errorf("missing ServiceAccount: %v", err)
	}
}

func TestPrependToIssuesTokensFromAFakeClientset(t *testing.T) {
	issuer := testenv.Issuer(t)
	c := clientset.NewClientset(app(), appPod())
	issuer.PrependTo(c)
	accounts := c.CoreV1().ServiceAccounts("tenant-a")
	got, err := accounts.CreateToken(t.Context(), "app", boundRequest(), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	checkClaims(t, got.Status.Token)
	if n := issuer.TokenRequests(); n != 1 {
		t.Errorf("%d TokenRequests", n)
	}
	if _, err := accounts.CreateToken(t.Context(), "missing", boundRequest(),
		metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("missing ServiceAccount: %v", err)
	}
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "other"}},
		metav1.CreateOptions{}); err != nil {
		t.Errorf("other requests: %v", err)
	}
}

func TestClientHoldsObjectsOfItsOwn(t *testing.T) {
	given := app()
	c := testenv.Issuer(t).Client(given, appPod())
	given.UID = "changed later"
	var got corev1.ServiceAccount
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(given), &got); err != nil || got.UID != "uid-1" {
		t.Errorf("UID %q, %v", got.UID, err)
	}
	got.Annotations = map[string]string{"a": "b"}
	if err := c.Update(t.Context(), &got); err != nil {
		t.Error(err)
	}
	var again corev1.ServiceAccount
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(given), &again); err != nil || again.Annotations["a"] != "b" {
		t.Errorf("after the update: %v, %v", again.Annotations, err)
	}
	missing := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "missing"}}
	for what, err := range map[string]error{
		"get": c.Get(t.Context(), client.ObjectKeyFromObject(missing), &again), "update": c.Update(t.Context(), missing),
		"delete": c.Delete(t.Context(), missing),
	} {
		if !apierrors.IsNotFound(err) {
			t.Errorf("%s of a missing ServiceAccount: %v", what, err)
		}
	}
	if err := c.Create(t.Context(), app()); !apierrors.IsAlreadyExists(err) {
		t.Errorf("a second ServiceAccount of that name: %v", err)
	}
}

func TestClientRefusesWhatItDoesNotImitate(t *testing.T) {
	c := testenv.Issuer(t).Client(app(), appPod())
	widget := &Widget{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "w"}}
	tokens := c.SubResource("token")
	for what, err := range map[string]error{
		"create of an unknown kind": c.Create(t.Context(), widget),
		"get of an unknown kind":    c.Get(t.Context(), client.ObjectKeyFromObject(widget), widget),
		"update of an unknown kind": c.Update(t.Context(), widget),
		"delete of an unknown kind": c.Delete(t.Context(), widget),
		"another sub-resource":      c.SubResource("eviction").Create(t.Context(), appPod(), boundRequest()),
		"get of a token":            tokens.Get(t.Context(), app(), boundRequest()),
		"update of a token":         tokens.Update(t.Context(), app()),
		"patch of a token":          tokens.Patch(t.Context(), app(), client.MergeFrom(app())),
		"apply of a token":          tokens.Apply(t.Context(), nil),
	} {
		if err == nil {
			t.Errorf("%s succeeds", what)
		}
	}
}
