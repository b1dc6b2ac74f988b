package serviceaccounts_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/serviceaccounts"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/testworld"
)

// A real API server refuses to write the incomplete result of a read, also with another client after a concurrent change.
func TestPartsAreNotWritten(t *testing.T) {
	cluster := kubetest.Start(t)
	namespace, admin := cluster.Namespace(t), cluster.Client()
	r, err := serviceaccounts.New(cluster.Config(), serviceaccounts.Options{Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	start(t, r)
	whole := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "app",
		Annotations: map[string]string{aws.RoleARNAnnotation: roleARN, "example.com/other": "x"}},
		ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}}}
	kube, key := r.Client(admin), client.ObjectKeyFromObject(whole)
	if err := kube.Create(t.Context(), whole); err != nil {
		t.Fatal(err)
	}
	sa := &corev1.ServiceAccount{}
	until(t, kube, key, "the creation", func(got *corev1.ServiceAccount, err error) bool { sa = got; return err == nil })
	before := sa.DeepCopy()
	sa.Annotations["example.com/mine"] = "1"
	configuration := applycore.ServiceAccount("app", namespace).WithAnnotations(sa.Annotations)
	for verb, err := range map[string]error{
		"update": kube.Update(t.Context(), sa),
		"patch":  kube.Patch(t.Context(), sa, client.MergeFrom(before)),
		"apply":  kube.Apply(t.Context(), configuration, client.FieldOwner("test")),
	} {
		if err == nil || !strings.Contains(err.Error(), verb+` ServiceAccount "`+namespace+`/app"`) ||
			!strings.Contains(err.Error(), "the client that was given to serviceaccounts.Reader.Client") {
			t.Errorf("%s: %v", verb, err)
		}
	}
	whole.Annotations["example.com/other"] = "y"
	if err := admin.Update(t.Context(), whole); err != nil {
		t.Fatal(err)
	}
	if err := admin.Update(t.Context(), sa); !apierrors.IsConflict(err) {
		t.Errorf("a write that comes too late: %v", err)
	}
	if err := admin.Get(t.Context(), key, sa); err != nil || len(sa.ImagePullSecrets) != 1 || sa.Annotations["example.com/other"] != "y" {
		t.Errorf("%v is left of it, %v", sa, err)
	}
}

// Other kinds are written and read by the base.
func TestClientLeavesOtherKindsAlone(t *testing.T) {
	cluster := kubetest.Start(t)
	namespace := cluster.Namespace(t)
	kube := newReader(t, fakeClient(), serviceaccounts.Options{}).Client(cluster.Client())
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "b"}}
	if err := kube.Create(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	cm.Data = map[string]string{"a": "1"}
	if err := kube.Update(t.Context(), cm); err != nil {
		t.Error(err)
	}
	before := cm.DeepCopy()
	cm.Data["b"] = "2"
	if err := kube.Patch(t.Context(), cm, client.MergeFrom(before)); err != nil {
		t.Error(err)
	}
	configuration := applycore.ConfigMap("b", namespace).WithData(map[string]string{"c": "3"})
	if err := kube.Apply(t.Context(), configuration, client.FieldOwner("test")); err != nil {
		t.Error(err)
	}
	got := &corev1.ConfigMap{}
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(cm), got); err != nil || len(got.Data) != 3 {
		t.Errorf("got %v, %v", got.Data, err)
	}
}

// One caller's changes are invisible to other callers.
func TestClientCopies(t *testing.T) {
	deleted := metav1.Now().Rfc3339Copy()
	object := metadataOf("tenant-a", "app", map[string]string{aws.RoleARNAnnotation: roleARN})
	object.DeletionTimestamp = &deleted
	r := newReader(t, fakeClient(object), serviceaccounts.Options{})
	start(t, r)
	kube := r.Client(nil)
	sa := get(t, kube, "tenant-a", "app")
	sa.Annotations[aws.RoleARNAnnotation] = roleARN + "-of-somebody-else"
	sa.DeletionTimestamp.Reset()
	for name, again := range map[string]*corev1.ServiceAccount{"client": get(t, kube, "tenant-a", "app"), "reader": get(t, r, "tenant-a", "app")} {
		if again.Annotations[aws.RoleARNAnnotation] != roleARN || !again.DeletionTimestamp.Equal(&deleted) {
			t.Errorf("through the %s others now read %v", name, again.ObjectMeta)
		}
	}
}

// Each Reader of a chain has its own namespace, and the base has the rest. Auth and others find the same, and both Readers
// serve auth without a copy.
func TestReaderPerNamespace(t *testing.T) {
	issuer := testworld.Issuer(t)
	base := issuer.Client(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "c", Name: "app", UID: "of the base"}})
	annotations := map[string]string{aws.AudienceAnnotation: aws.DefaultAudience}
	c := fakeClient(metadataOf("a", "app", annotations), metadataOf("b", "app", annotations), metadataOf("c", "app", annotations))
	ra := newReader(t, c, serviceaccounts.Options{Namespace: "a"})
	rb := newReader(t, c, serviceaccounts.Options{Namespace: "b"})
	start(t, ra)
	start(t, rb)
	kube := rb.Client(ra.Client(base))
	shared, ok := kube.(interface {
		GetShared(ctx context.Context, key client.ObjectKey, sa *corev1.ServiceAccount) error
	})
	if !ok {
		t.Fatal("auth would have copies made")
	}
	for namespace, want := range map[string]string{"a": "a/app", "b": "b/app", "c": "of the base"} {
		key, sa := client.ObjectKey{Namespace: namespace, Name: "app"}, &corev1.ServiceAccount{}
		if got := get(t, kube, namespace, "app"); string(got.UID) != want {
			t.Errorf("in %s it is %q", namespace, got.UID)
		}
		if err := shared.GetShared(t.Context(), key, sa); err != nil || string(sa.UID) != want {
			t.Errorf("for auth it is %q in %s, %v", sa.UID, namespace, err)
		}
		var err error
		if n := testing.AllocsPerRun(100, func() { err = shared.GetShared(t.Context(), key, sa) }); err != nil || n >= 1 && namespace != "c" {
			t.Errorf("reading in %s makes %.1f allocations, %v", namespace, n, err)
		}
	}
	sa := &corev1.ServiceAccount{}
	if err := ra.Get(t.Context(), client.ObjectKey{Namespace: "b", Name: "app"}, sa); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), `namespace "a" only, not "b"`) {
		t.Errorf("the Reader of another namespace says %v", err)
	}
	_, err := auth.GetAccessToken(t.Context(), &aws.Provider{}, auth.WithServiceAccount(client.ObjectKey{Namespace: "a", Name: "app"}, kube),
		auth.WithOwner(cache.InvolvedObject{Kind: "Bucket", Namespace: "a", Name: "b"}), auth.WithSTSRegion("eu-central-1"))
	check(t, err, auth.ErrMisconfigured, aws.RoleARNAnnotation)
}
