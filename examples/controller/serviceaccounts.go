package main

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/workloadid/workloadid/auth/aws"
)

// serviceAccounts lets the manager keep only the parts of ServiceAccounts that
// auth reads, and return them without a copy. Never write to a ServiceAccount
// that the manager's client returned.
func serviceAccounts() ctrlcache.ByObject {
	strip := func(obj any) (any, error) {
		sa, ok := obj.(*corev1.ServiceAccount)
		if !ok {
			return obj, nil
		}
		kept := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: sa.Name, Namespace: sa.Namespace, UID: sa.UID,
			ResourceVersion: sa.ResourceVersion, DeletionTimestamp: sa.DeletionTimestamp}}
		for _, name := range []string{aws.RoleARNAnnotation, aws.AudienceAnnotation, aws.TokenExpirationAnnotation} {
			if value, ok := sa.Annotations[name]; ok {
				metav1.SetMetaDataAnnotation(&kept.ObjectMeta, name, short(value))
			}
		}
		return kept, nil
	}
	return ctrlcache.ByObject{Transform: strip, UnsafeDisableDeepCopy: new(true)}
}

// short cuts what is too long for any role, region or name: tenants fill whole
// objects.
func short(value string) string { return strings.Clone(value[:min(len(value), 2000)]) }
