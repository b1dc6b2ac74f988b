package csr

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Reconcile judges one request.
func Reconcile(h *HubDriver, ctx context.Context, name string) (reconcile.Result, error) { //nolint:revive // h is its receiver
	return h.reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
}
