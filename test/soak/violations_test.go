package soak

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// violations are what must not happen, by kind.
type violations struct {
	mu    sync.Mutex
	kinds map[string]*violation
}

type violation struct {
	times    int
	examples []string
}

const (
	maxExamples = 5
	clockTime   = "15:04:05.000"
)

func (v *violations) add(kind, format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.kinds == nil {
		v.kinds = map[string]*violation{}
	}
	k := v.kinds[kind]
	if k == nil {
		k = &violation{}
		v.kinds[kind] = k
	}
	k.times++
	if len(k.examples) < maxExamples {
		k.examples = append(k.examples, time.Now().Format(clockTime)+" "+fmt.Sprintf(format, args...))
	}
}

func (v *violations) report(t *testing.T) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for kind, k := range v.kinds {
		t.Errorf("%s, %d times:\n\t%s", kind, k.times, strings.Join(k.examples, "\n\t"))
	}
}
