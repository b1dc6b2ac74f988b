package serviceaccounts

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/annotation"
)

// store receives the reflector's objects.
type store struct {
	names    map[string]bool
	prefixes []string
	state    *state

	mu   sync.RWMutex
	kept map[client.ObjectKey]account
}

// account is the kept part of a ServiceAccount.
type account struct {
	uid         types.UID
	version     string            // makes a late write a conflict
	annotations map[string]string // never written to again
	deleted     *metav1.Time
}

func newStore(prefixes []string, state *state) *store {
	s := &store{names: map[string]bool{}, prefixes: slices.Clone(prefixes), state: state, kept: map[client.ObjectKey]account{}}
	for _, name := range annotation.All() {
		s.names[name] = true
	}
	return s
}

func (s *store) get(key client.ObjectKey) (account, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	a, ok := s.kept[key]
	return a, ok
}

// Add implements cache.ReflectorStore.
func (s *store) Add(obj any) error {
	s.state.contact()
	key, a, err := s.strip(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept[key] = a
	return nil
}

// Update implements cache.ReflectorStore.
func (s *store) Update(obj any) error { return s.Add(obj) }

// Delete implements cache.ReflectorStore.
func (s *store) Delete(obj any) error {
	s.state.contact()
	key, _, err := s.strip(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.kept, key)
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *store) Replace(objs []any, _ string) error {
	kept := make(map[client.ObjectKey]account, len(objs))
	for _, obj := range objs {
		key, a, err := s.strip(obj)
		if err != nil {
			return err
		}
		kept[key] = a
	}
	s.mu.Lock()
	s.kept = kept
	s.mu.Unlock()
	s.state.sync()
	return nil
}

// Bookmark implements cache.ReflectorBookmarkStore. Bookmarks show about every minute that a watch is alive.
func (s *store) Bookmark(string) error {
	s.state.contact()
	return nil
}

// Resync implements cache.ReflectorStore.
func (*store) Resync() error { return nil }

// Transformer makes the reflector strip objects as they arrive, before it holds all of them.
func (s *store) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		if m, ok := obj.(*metav1.PartialObjectMetadata); ok {
			m.ObjectMeta = metav1.ObjectMeta{Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
				Annotations: s.keep(m.Annotations), DeletionTimestamp: m.DeletionTimestamp}
		}
		return obj, nil
	}
}

func (s *store) strip(obj any) (client.ObjectKey, account, error) {
	m, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return client.ObjectKey{}, account{}, fmt.Errorf("got a %T instead of metadata", obj)
	}
	// A decoded string may refer to the whole response and keep it in memory.
	key := client.ObjectKey{Namespace: shared(m.Namespace), Name: strings.Clone(m.Name)}
	return key, account{uid: types.UID(strings.Clone(string(m.UID))), version: strings.Clone(m.ResourceVersion),
		annotations: s.keep(m.Annotations), deleted: m.DeletionTimestamp}, nil
}

// maxValue bounds a kept annotation, in bytes. No provider of this module accepts a longer value, and no message shows more of
// it. Only the length in a message may change.
const maxValue = 4096

// keep copies the wanted annotations. Nil if there are none.
func (s *store) keep(annotations map[string]string) map[string]string {
	var kept map[string]string
	for name, value := range annotations {
		if !s.wanted(name) {
			continue
		}
		if kept == nil {
			kept = map[string]string{}
		}
		kept[shared(name)] = strings.Clone(value[:min(len(value), maxValue)])
	}
	return kept
}

func (s *store) wanted(name string) bool {
	return s.names[name] || slices.ContainsFunc(s.prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// shared returns the common copy of a string that many ServiceAccounts contain.
func shared(s string) string { return unique.Make(s).Value() }
