package doctorcmd

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// An API server that sends its callers elsewhere gets nobody's credentials there.
func TestRedirectOfAPIServer(t *testing.T) {
	var stolen atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stolen.Add(1) }))
	defer elsewhere.Close()
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL+r.URL.Path, status)
		}))
		config := &rest.Config{Host: server.URL, BearerToken: "the-user's"}
		cli.BoundAnswers(config)
		kube, err := newDoctorClient(config)
		if err != nil {
			t.Fatal(err)
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}}
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err == nil || stolen.Load() != 0 {
			t.Errorf("%d: %d requests elsewhere, %v", status, stolen.Load(), err)
		}
		server.Close()
	}
}
