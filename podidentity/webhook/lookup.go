package webhook

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
)

// Limits on lists from the API server. A binding has up to 1.5 MB if it was stored without the admission policy.
const (
	maxLists = 2
	maxPage  = 4
)

// bindings returns the bindings of a ServiceAccount, or the first ones if there are more than one. A cache without any may be behind.
func (h *handler) bindings(ctx context.Context, namespace, account string, size int) ([]v1alpha1.IAMBinding, error) {
	found, _, err := find(ctx, h.o.Bindings, namespace, account, client.UnsafeDisableDeepCopy)
	if err != nil || len(found) > 0 {
		return found, err
	}
	return h.live(ctx, namespace, account, size)
}

// live lists from the API server. Meanwhile it gives up the slot of its request, and counts the size of the pod, which stays in memory.
func (h *handler) live(ctx context.Context, namespace, account string, size int) (found []v1alpha1.IAMBinding, err error) {
	<-h.slots
	defer func() { h.slots <- struct{}{} }() // requests with a slot wait for nothing
	if !h.waiting.add(namespace, size) {
		return nil, errBusy
	}
	defer h.waiting.add(namespace, -size)
	leave, err := h.lists.enter(ctx, namespace)
	if err != nil {
		return nil, err
	}
	defer leave()
	for next := ""; ; {
		var page []v1alpha1.IAMBinding
		page, next, err = find(ctx, h.o.Live, namespace, account, client.Limit(maxPage), client.Continue(next))
		if found = append(found, page...); err != nil || next == "" || len(found) > 1 {
			return found, err
		}
	}
}

// find returns the bindings of a ServiceAccount in one page, and where the next page continues. The server ignores deleted ones too.
func find(ctx context.Context, from client.Reader, namespace, account string, options ...client.ListOption) ([]v1alpha1.IAMBinding, string, error) {
	var list v1alpha1.IAMBindingList
	if err := from.List(ctx, &list, append(options, client.InNamespace(namespace))...); err != nil {
		return nil, "", fmt.Errorf("list the IAMBindings of namespace %.253q: %.500s", namespace, err.Error())
	}
	return slices.DeleteFunc(list.Items, func(b v1alpha1.IAMBinding) bool {
		return !b.DeletionTimestamp.IsZero() || b.Spec.ServiceAccountRef.Name != account
	}), list.Continue, nil
}

// lists bounds the lists from the API server: maxLists at a time, and one of a namespace. Namespaces take turns, however many pods of one
// wait. It is safe for concurrent use.
type lists struct {
	running chan struct{} // of capacity maxLists; its waiters are served in the order of their arrival, at most one of a namespace

	mu    sync.Mutex // never held while waiting
	turns map[string]*turn
}

// turn is what the pods of a namespace wait for among themselves.
type turn struct {
	taken chan struct{} // of capacity 1
	users int
}

func newLists() *lists {
	return &lists{running: make(chan struct{}, maxLists), turns: map[string]*turn{}}
}

// enter waits until the list may start. The caller calls leave when it has ended.
func (l *lists) enter(ctx context.Context, namespace string) (leave func(), err error) {
	own := l.use(namespace, 1)
	select {
	case own.taken <- struct{}{}:
	case <-ctx.Done():
		l.use(namespace, -1)
		return nil, errBusy
	}
	release := func() {
		<-own.taken
		l.use(namespace, -1)
	}
	select {
	case l.running <- struct{}{}:
	case <-ctx.Done():
		release()
		return nil, errBusy
	}
	return func() {
		<-l.running
		release()
	}, nil
}

// use adds n pods to those that wait or list in a namespace.
func (l *lists) use(namespace string, n int) *turn {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.turns[namespace]
	if own == nil {
		own = &turn{taken: make(chan struct{}, 1)}
		l.turns[namespace] = own
	}
	if own.users += n; own.users == 0 {
		delete(l.turns, namespace)
	}
	return own
}
