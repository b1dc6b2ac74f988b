package disk

import (
	"testing"

	"github.com/workloadid/workloadid/cache"
)

// The cache may be told to use a folder that holds more than its own files, which stay.
func TestOnlyOurFilesAreSwept(t *testing.T) {
	own := fileOf(cache.Key{1, 2, 3})
	for name, want := range map[string]bool{own: true, "new-" + own: true, "config.json": false, "application_default_credentials.json": false,
		own + ".json": false, "x" + own[1:]: false, own[2:]: false, "old-" + own: false} {
		if got := isEntry(name); got != want {
			t.Errorf("%q: %t", name, got)
		}
	}
}
