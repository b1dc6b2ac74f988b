package agent

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/workloadid/workloadid/registration/csr"
)

// Add-ons use the hub again as soon as the agent has another credential.
func TestHubSessionsTellOfChanges(t *testing.T) {
	var s hubSessions
	first := &hubSession{made: map[string][]byte{"a": []byte("1")}}
	_, replaced := s.get()
	s.set(nil)
	if replaced.Err() != nil {
		t.Error("nothing was replaced by nothing")
	}
	s.set(first)
	if replaced.Err() == nil {
		t.Error("no word of the first access")
	}
	current, replaced := s.get()
	s.set(&hubSession{made: map[string][]byte{"a": []byte("1")}})
	if current != first || replaced.Err() != nil {
		t.Error("an access that is made of the same replaces another one")
	}
	s.set(&hubSession{made: map[string][]byte{"a": []byte("2")}})
	if replaced.Err() == nil {
		t.Error("no word of the second access")
	}
	_, replaced = s.get()
	s.set(nil)
	if current, _ := s.get(); current != nil || replaced.Err() == nil {
		t.Error("no word of the lost access")
	}
}

// An add-on is requested within a minute of a change of its health, and not
// before. The hub is not asked: there is none.
func TestHealthIsWatchedOnTheManagedClusterAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		renewed := metav1.NewMicroTime(time.Now())
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "addons", Name: "a"},
			Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}}
		local := fake.NewClientBuilder().WithObjects(lease).Build()
		a := &AddOns{agent: &Agent{opts: Options{Local: local, Now: time.Now}}, health: map[string]addOnHealth{
			"a": {"addons", reasonLeaseUpdated}, "without": {"addons", reasonLeaseNotFound}}}
		ctx, cancel := context.WithCancel(t.Context())
		requested := make(chan string, 10)
		go a.watchHealth(ctx, func(addOn string) { requested <- addOn })
		time.Sleep(leaseGrace - time.Second)
		if synctest.Wait(); len(requested) > 0 {
			t.Errorf("%q is requested", <-requested)
		}
		time.Sleep(healthInterval)
		if synctest.Wait(); len(requested) != 1 || <-requested != "a" {
			t.Error("it is not requested alone")
		}
		a.forgetHealth("a")
		time.Sleep(healthInterval)
		if synctest.Wait(); len(requested) > 0 {
			t.Errorf("an add-on that is forgotten is requested: %q", <-requested)
		}
		cancel()
	})
}

// client-go adds the agent's token to every request, so a redirect would show
// it to another host.
func TestWatchesFollowNoRedirect(t *testing.T) {
	asked := ""
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked += r.URL.Path
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	}))
	defer hub.Close()
	c, err := watchingHTTPClient(&rest.Config{Host: hub.URL, BearerToken: "token"})
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, hub.URL+"/watch", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := c.Do(request)
	if err == nil {
		_ = answer.Body.Close()
	}
	if err == nil || asked != "/watch" {
		t.Errorf("error %v after requests of %q, want an error after /watch alone", err, asked)
	}
}

// Two agents of one cluster store the credentials of add-ons apart.
func TestAddOnsFollowTheNamespaceOfTheAgent(t *testing.T) {
	for namespace, want := range map[string]string{"": DefaultAddOnNamespace, "second": "second-addon"} {
		driver := csr.New(csr.Options{})
		joined, err := New(Options{Cluster: "cluster1", Driver: driver, Local: fake.NewClientBuilder().Build(),
			Namespace: namespace})
		if err != nil {
			t.Fatal(err)
		}
		if a, err := NewAddOns(AddOnOptions{Agent: joined, KubeClient: driver}); err != nil || a.opts.Namespace != want {
			t.Errorf("agent in %q: got %+v, %v, want %q", namespace, a, err, want)
		}
	}
}
