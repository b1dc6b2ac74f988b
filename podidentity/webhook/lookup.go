package webhook

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/quota"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
)

// Limits on lists from the API server. A binding that was stored without the
// admission policy has up to 1.5 MB.
const (
	maxLists = 2
	maxPage  = 4
)

// bindings returns the bindings of a ServiceAccount, or only the first ones if
// there are several. If the cache holds none, it may lag behind.
func (h *handler) bindings(ctx context.Context, namespace, account string, size int) ([]v1alpha1.IAMBinding, error) {
	found, _, err := find(ctx, h.o.Bindings, namespace, account, client.UnsafeDisableDeepCopy)
	if err != nil || len(found) > 0 {
		return found, err
	}
	return h.live(ctx, namespace, account, size)
}

// live lists from the API server. Meanwhile it releases the slot of its
// request. The size of the pod counts, because the pod stays in memory.
func (h *handler) live(ctx context.Context, namespace, account string,
	size int) (found []v1alpha1.IAMBinding, err error) {
	<-h.slots
	defer func() { h.slots <- struct{}{} }() // a request with a slot waits for nothing
	if !h.waiting.Reserve(namespace, size) {
		return nil, errBusy
	}
	defer h.waiting.Release(namespace, size)
	own, unuse := h.turns.Use(namespace)
	defer unuse()
	for _, slots := range []quota.Slots{own, h.lists} {
		leave, err := slots.Take(ctx)
		if err != nil {
			return nil, errBusy
		}
		defer leave()
	}
	for next := ""; ; {
		var page []v1alpha1.IAMBinding
		page, next, err = find(ctx, h.o.Live, namespace, account, client.Limit(maxPage), client.Continue(next))
		if found = append(found, page...); err != nil || next == "" || len(found) > 1 {
			return found, err
		}
	}
}

// find returns the bindings of a ServiceAccount in one page, and the position
// of the next page. Like the server, it ignores bindings that are being
// deleted.
func find(ctx context.Context, from client.Reader, namespace, account string,
	options ...client.ListOption) ([]v1alpha1.IAMBinding, string, error) {
	var list v1alpha1.IAMBindingList
	if err := from.List(ctx, &list, append(options, client.InNamespace(namespace))...); err != nil {
		return nil, "", fmt.Errorf("list the IAMBindings of namespace %.253q: %.500s", namespace, err.Error())
	}
	return slices.DeleteFunc(list.Items, func(b v1alpha1.IAMBinding) bool {
		return !b.DeletionTimestamp.IsZero() || b.Spec.ServiceAccountRef.Name != account
	}), list.Continue, nil
}
