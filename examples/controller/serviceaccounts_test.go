package main

import (
	"maps"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/workloadid/workloadid/auth/aws"
)

func TestServiceAccountsAreStripped(t *testing.T) {
	annotations := map[string]string{aws.RoleARNAnnotation: role, aws.AudienceAnnotation: "sts.amazonaws.com",
		aws.TokenExpirationAnnotation: "3600"}
	want := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app", UID: "1",
		ResourceVersion:   "2",
		DeletionTimestamp: &metav1.Time{Time: time.Now()}, Annotations: annotations}}
	whole := want.DeepCopy()
	whole.Labels, whole.Finalizers, whole.Generation = map[string]string{"a": "b"}, []string{"a"}, 1
	whole.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	whole.Annotations = maps.Clone(annotations)
	whole.Annotations[corev1.LastAppliedConfigAnnotation] = "{}"
	whole.Secrets, whole.ImagePullSecrets = []corev1.ObjectReference{{Name: "a"}},
		[]corev1.LocalObjectReference{{Name: "b"}}
	strip := serviceAccounts().Transform
	for range 2 { // an informer may strip again
		kept, err := strip(whole)
		if err != nil || !reflect.DeepEqual(kept, want) {
			t.Fatalf("got %+v, %v", kept, err)
		}
		whole = kept.(*corev1.ServiceAccount) //nolint:forcetypeassert // compared above
	}
	tombstone := toolscache.DeletedFinalStateUnknown{Key: "tenant-a/app", Obj: want}
	if kept, err := strip(tombstone); err != nil || !reflect.DeepEqual(kept, tombstone) {
		t.Errorf("got %+v, %v", kept, err)
	}
}
