package auth

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/auth/provider"
)

// maxAnnotation is longer than any role, identity or audience.
const maxAnnotation = 2000

// ServiceAccountTransform returns the transform of an informer that keeps of
// each ServiceAccount what [GetAccessToken] reads for the given providers: the
// name, namespace, UID, resource version and deletion timestamp, and the
// annotations that a provider names ([provider.AnnotationReader]), cut at 2,000
// bytes each. Without it an informer holds all that a tenant writes, 256 kB of
// annotations and more. It returns other objects as they are.
//
// Controller-runtime takes it in cache.Options.ByObject. There
// UnsafeDisableDeepCopy is safe beside it, because this library writes to no
// ServiceAccount.
//
// Never write to a ServiceAccount that such an informer returned, and never
// update one from it.
//
// The transform is safe for concurrent use.
func ServiceAccountTransform(providers ...Provider) func(any) (any, error) {
	var read []string
	for _, p := range providers {
		if reader, ok := p.(provider.AnnotationReader); ok {
			read = append(read, reader.GetAnnotations()...)
		}
	}
	return func(obj any) (any, error) {
		sa, ok := obj.(*corev1.ServiceAccount)
		if !ok {
			return obj, nil
		}
		kept := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: sa.Name, Namespace: sa.Namespace, UID: sa.UID,
			ResourceVersion: sa.ResourceVersion, DeletionTimestamp: sa.DeletionTimestamp}}
		for _, name := range read {
			if value, ok := sa.Annotations[name]; ok {
				value = strings.Clone(value[:min(len(value), maxAnnotation)])
				metav1.SetMetaDataAnnotation(&kept.ObjectMeta, name, value)
			}
		}
		return kept, nil
	}
}
