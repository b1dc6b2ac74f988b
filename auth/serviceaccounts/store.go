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

// store is what the reflector writes to.
type store struct {
	names    map[string]bool
	prefixes []string
	state    *state

	mu   sync.RWMutex
	kept map[client.ObjectKey]account
}

// account is what is kept of a ServiceAccount.
type account struct {
	uid         types.UID
	version     string            // so that a write that comes too late is a conflict
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

// Bookmark implements cache.ReflectorBookmarkStore: the API server shows every minute or so that a watch is alive.
func (s *store) Bookmark(string) error {
	s.state.contact()
	return nil
}

// Resync implements cache.ReflectorStore.
func (*store) Resync() error { return nil }

// Transformer has the reflector strip objects as soon as they arrive, before it holds all of them.
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
	// Decoded strings may be parts of the whole answer, which must not stay in memory for them.
	key := client.ObjectKey{Namespace: shared(m.Namespace), Name: strings.Clone(m.Name)}
	return key, account{uid: types.UID(strings.Clone(string(m.UID))), version: strings.Clone(m.ResourceVersion),
		annotations: s.keep(m.Annotations), deleted: m.DeletionTimestamp}, nil
}

// maxValue bounds what is kept of an annotation, in bytes. No provider of this module accepts as much, and no message shows
// as much of it: what is cut off changes nothing but the length that a message may give.
const maxValue = 4096

// keep copies the annotations that somebody may look at. Nil if there are none.
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

// shared returns the one copy of a string that many ServiceAccounts have.
func shared(s string) string { return unique.Make(s).Value() }
