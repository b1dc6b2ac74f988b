package webhook_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/podidentity/webhook"
)

// An answer that allows nothing would refuse an IAMBinding even with
// failurePolicy Ignore. An HTTP error does not.
func TestBindingsAreNeverRefused(t *testing.T) {
	for path, want := range map[string]int{webhook.BindingsPath: http.StatusServiceUnavailable, "/pods": http.StatusOK} {
		t.Run(path, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader("no review"))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			newHandler(t, options()).ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("status %d, want %d", w.Code, want)
			}
		})
	}
}
