package doctor_test

import (
	"strings"
	"sync"
	"testing"
)

// targetFault is one of those of a bootstrap or an enrolment, each of which has a class of its own.
type targetFault interface {
	diagnosed(t *testing.T)
	label() (name, class string)
}

// recall runs a list of faults and logs how many of them were named.
func recall[F targetFault](t *testing.T, what string, all []F) {
	t.Helper()
	var mu sync.Mutex
	found, classes := 0, map[string]bool{}
	t.Run("each", func(t *testing.T) {
		for _, f := range all {
			name, class := f.label()
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f.diagnosed(t)
				mu.Lock()
				defer mu.Unlock()
				if !t.Failed() {
					found, classes[class] = found+1, true
				}
			})
		}
	})
	t.Logf("recall %s %3d of %3d faults, %d classes: %s", what, found, len(all), len(classes), strings.Join(sorted(classes), " "))
}
