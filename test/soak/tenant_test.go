package soak

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cache"
)

// tenant is a ServiceAccount and what it may do.
type tenant struct {
	n       int
	key     client.ObjectKey
	side    *side
	names   [2]string // by which the cloud knows its two identities
	options []auth.Option
	direct  []auth.Option // the same without the informer
	stored  []auth.Option // the same with the informer that strips

	mu      sync.Mutex
	touched time.Time // when it was last changed
	minted  []minted  // the newest last
	records map[purpose]*record
}

// purpose is what the cache keeps apart of one tenant.
type purpose struct {
	uid      types.UID
	identity string
	kind     string
}

const registryKind = "registry"

// usesRegistry is every fourth tenant.
func (t *tenant) usesRegistry() bool { return t.n/3%4 == 0 }

func (t *tenant) subject() string {
	return "system:serviceaccount:" + t.key.Namespace + ":" + t.key.Name
}

func (t *tenant) object() cache.InvolvedObject {
	return cache.InvolvedObject{Kind: "Soak", Namespace: t.key.Namespace, Name: t.key.Name, Operation: "reconcile"}
}

func (t *tenant) serviceAccount(annotations map[string]string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: t.key.Namespace, Name: t.key.Name, Annotations: annotations}}
}

// variantOf returns which of the tenant's identities annotations ask for, -1 if
// it is none of them.
func (t *tenant) variantOf(annotations map[string]string) int {
	for variant := range t.names {
		if maps.Equal(annotations, t.side.annotations(t, variant)) {
			return variant
		}
	}
	return -1
}

func (t *tenant) touch() {
	t.mu.Lock()
	t.touched = time.Now()
	t.mu.Unlock()
}

func (t *tenant) touchedSince(at time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.touched.After(at)
}

const perNamespace = 10

// newTenants makes them up. Every fiftieth begins as a thief.
func (w *environment) newTenants(sides []*side, n int) {
	w.byKey = map[client.ObjectKey]*tenant{}
	w.byName = map[string]*tenant{}
	for i := range n {
		t := &tenant{n: i, side: sides[i%len(sides)], records: map[purpose]*record{},
			key: client.ObjectKey{Namespace: fmt.Sprintf("soak-%04d", i/perNamespace),
				Name: fmt.Sprintf("app-%d", i%perNamespace)}}
		t.names = t.side.grant(t)
		with := func(c client.Client) []auth.Option {
			return append([]auth.Option{auth.WithServiceAccount(t.key, c), auth.WithCache(w.tokens, t.object()),
				auth.WithHTTPClient(w.httpClient)}, t.side.options...)
		}
		t.options, t.direct, t.stored = with(w.informed), with(w.reading), with(w.stored)
		w.tenants = append(w.tenants, t)
		w.byKey[t.key] = t
		for _, name := range t.names {
			w.byName[name] = t
		}
	}
}

// victim is another tenant of the same cloud.
func (w *environment) victim(t *tenant, r *rand.Rand) *tenant {
	for {
		if v := w.tenants[r.IntN(len(w.tenants))]; v != t && v.side == t.side {
			return v
		}
	}
}

// churn changes tenants until ctx ends: they are deleted, re-created, get their
// other identity, that of another tenant, or none.
func (w *environment) churn(ctx context.Context, every time.Duration) {
	r := rand.New(rand.NewPCG(*soakSeed, 1)) //nolint:gosec // chooses tenants
	const maxBroken = 50
	var changed []*tenant
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		t := w.tenants[r.IntN(len(w.tenants))]
		changed = append(changed, t)
		w.change(ctx, t, r)
		if len(changed) > maxBroken {
			w.mend(ctx, changed[0], r)
			changed = changed[1:]
		}
	}
}

// change may fail while the API server is down. What came of it is for the
// informer to tell.
func (w *environment) change(ctx context.Context, t *tenant, r *rand.Rand) {
	w.alter(ctx, t, func(ctx context.Context, found *corev1.ServiceAccount) error {
		switch choice := r.IntN(20); {
		case found == nil || t.variantOf(found.Annotations) < 0:
			return nil // it has been changed already
		case choice < 8:
			return w.admin.Delete(ctx, found)
		case choice < 16:
			other := 1 - t.variantOf(found.Annotations)
			return w.admin.Update(ctx, t.serviceAccount(t.side.annotations(t, other)))
		case choice < 19:
			v := w.victim(t, r)
			return w.admin.Update(ctx, t.serviceAccount(v.side.annotations(v, 0)))
		}
		return w.admin.Update(ctx, t.serviceAccount(nil))
	})
}

// mend gives a tenant back what it needs.
func (w *environment) mend(ctx context.Context, t *tenant, r *rand.Rand) {
	own := t.serviceAccount(t.side.annotations(t, r.IntN(2)))
	w.alter(ctx, t, func(ctx context.Context, found *corev1.ServiceAccount) error {
		switch {
		case found == nil:
			return w.admin.Create(ctx, own)
		case t.variantOf(found.Annotations) < 0:
			return w.admin.Update(ctx, own)
		}
		return nil
	})
}

// alter has a ServiceAccount changed, which is nil if there is none.
func (w *environment) alter(ctx context.Context, t *tenant, do func(context.Context, *corev1.ServiceAccount) error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	t.touch()
	defer t.touch()
	found := &corev1.ServiceAccount{}
	err := w.admin.Get(ctx, t.key, found)
	if apierrors.IsNotFound(err) {
		found, err = nil, nil
	}
	if err == nil {
		err = do(ctx, found)
	}
	if err == nil {
		w.changes.add(t.side.name)
	}
}
