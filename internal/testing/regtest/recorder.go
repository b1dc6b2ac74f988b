package regtest

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
)

// Recorder keeps Events as "<name of the object> <reason>: <message>".
type Recorder struct {
	mu   sync.Mutex
	said []string
}

// Eventf implements events.EventRecorder.
func (r *Recorder) Eventf(about, _ runtime.Object, _, reason, _, note string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if object, err := meta.Accessor(about); err == nil {
		r.said = append(r.said, fmt.Sprintf("%s %s: %s", object.GetName(), reason, fmt.Sprintf(note, args...)))
	}
}

// Says reports whether one Event has all the parts.
func (r *Recorder) Says(parts ...string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.said, func(said string) bool {
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(said, part) })
	})
}
