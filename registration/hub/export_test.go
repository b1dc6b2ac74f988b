package hub

import "context"

// List lists the clusters as the controller does before its first reconcile.
func (h *Hub) List(ctx context.Context) error { return h.list(ctx) }
