package csr

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Helpers that tests call.
var (
	AddOnRequest = addOnRequest
	SANExtension = sanExtension
)

// Reconcile judges one request.
func Reconcile(ctx context.Context, h *HubDriver, name string) (reconcile.Result, error) {
	return h.reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
}
