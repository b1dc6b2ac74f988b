package controllers

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/bootstrap"
)

// ByObject is for cache.Options.ByObject of the manager that runs Signer and Cleaner: it reads the Secrets of kube-system and
// the ConfigMaps of kube-public, and no others. A manager whose other controllers read Secrets or ConfigMaps elsewhere adds
// their namespaces to it, and the rules for them. Each call returns a map of its own.
func ByObject() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&corev1.Secret{}:    {Namespaces: map[string]cache.Config{bootstrap.SecretNamespace: {}}},
		&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{bootstrap.ConfigMapNamespace: {}}},
	}
}
