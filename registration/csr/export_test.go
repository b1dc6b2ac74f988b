package csr

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Tests call these.
var (
	AddOnRequest = addOnRequest
	SANExtension = sanExtension
)

// Reconcile checks one request.
func Reconcile(ctx context.Context, h *HubDriver, name string) (reconcile.Result, error) {
	return h.reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
}
