package advice_test

import (
	"testing"

	"github.com/workloadid/workloadid/registration/internal/advice"
)

// Names of requests are chosen by bootstrap users. The command that an Event
// prints runs as printed.
func TestCommandOfARefusalIsSafe(t *testing.T) {
	for name, want := range map[string]string{"csr1": "csr1", "a b;$(id)": `'a b;$(id)'`, "--all": "REQUEST",
		"a\nb": "REQUEST"} {
		if got := advice.Approve("cluster1", name); got != "wid hub accept --clusters cluster1 --approve-request "+want {
			t.Errorf("%q: %s", name, got)
		}
	}
}
