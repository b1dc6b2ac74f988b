package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/internal/testing/cachetest"
)

// Tenants write all that the controller caches.
func TestCacheKeepsLittle(t *testing.T) {
	for name, row := range map[string]struct {
		transform cache.TransformFunc
		object    client.Object
	}{
		"ServiceAccounts": {auth.ServiceAccountTransform(&aws.Provider{}),
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{aws.RoleARNAnnotation: ""}}}},
		"ConfigMaps": {stripConfigMap,
			&corev1.ConfigMap{Data: map[string]string{"serviceAccountName": "", "region": "", "identity": ""}}},
	} {
		t.Run(name, func(t *testing.T) { cachetest.Check(t, row.transform, row.object) })
	}
}
