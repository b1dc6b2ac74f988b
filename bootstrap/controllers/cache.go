package controllers

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ByObject returns [cache.Options.ByObject] for the manager of [Signer] and
// [Cleaner]: the Secrets of kube-system and the ConfigMaps of kube-public only.
// If other controllers of the manager read elsewhere, add their namespaces to
// the map and to the rules. Each call returns a new map.
func ByObject() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&corev1.Secret{}:    {Namespaces: map[string]cache.Config{metav1.NamespaceSystem: {}}},
		&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{metav1.NamespacePublic: {}}},
	}
}
