package serviceaccounts

import (
	"fmt"
	"strings"
	"sync"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// store is what the reflector writes to.
type store struct {
	prefixes []string
	synced   chan struct{} // closed after the first reading

	once sync.Once
	mu   sync.RWMutex
	kept map[client.ObjectKey]account
}

// account is what is kept of a ServiceAccount.
type account struct {
	uid         types.UID
	annotations map[string]string // never written to again
	deleted     *metav1.Time
}

func newStore(prefixes []string) *store {
	return &store{prefixes: prefixes, synced: make(chan struct{}), kept: map[client.ObjectKey]account{}}
}

func (s *store) get(key client.ObjectKey) (account, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	a, ok := s.kept[key]
	return a, ok
}

// Add implements cache.ReflectorStore.
func (s *store) Add(obj any) error {
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
	s.once.Do(func() { close(s.synced) })
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
	return key, account{uid: types.UID(strings.Clone(string(m.UID))), annotations: s.keep(m.Annotations), deleted: m.DeletionTimestamp}, nil
}

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
		kept[shared(name)] = strings.Clone(value)
	}
	return kept
}

func (s *store) wanted(name string) bool {
	if s.prefixes == nil {
		return name != corev1.LastAppliedConfigAnnotation
	}
	for _, prefix := range s.prefixes {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// shared returns the one copy of a string that many ServiceAccounts have.
func shared(s string) string { return unique.Make(s).Value() }
