package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/testing/testca"
)

// An answer has the CAs of the moment. CAs that sidecars would ignore cost no
// pod its credentials.
func TestAnswersHandOutCAs(t *testing.T) {
	ca, next := testca.New(t, "ca"), testca.New(t, "next")
	inFakeTime(t, func(w *fakeEnvironment) {
		w.trust(roles + "app")
		for name, test := range map[string]struct{ file, want string }{
			"no file":       {"", ""},
			"one CA":        {ca.PEM(), ca.PEM()},
			"two CAs":       {ca.PEM() + next.PEM(), ca.PEM() + next.PEM()},
			"comments":      {"# <ours>\n" + ca.PEM() + "# the next\n" + next.PEM(), ca.PEM() + next.PEM()},
			"a private key": {ca.PEM() + "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n", ""},
			"oversized":     {ca.PEM() + strings.Repeat("\x01", 64<<10), ""},
		} {
			w.ca = []byte(test.file)
			a := w.ask("a", "app", "worker")
			got, has := a.body["CABundle"]
			if a.status != http.StatusOK || got != test.want || has != (test.want != "") {
				t.Errorf("%s: %v with CAs %q, want %q", name, a, got, test.want)
			}
		}
	}, named(bindingOf("a", "app", roles+"app"), "app"))
}
