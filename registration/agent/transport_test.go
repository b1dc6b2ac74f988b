package agent_test

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/agent"
)

// reconcileAgainst reconciles once with an agent whose hub is the handler.
func reconcileAgainst(t *testing.T, hub http.HandlerFunc) error {
	t.Helper()
	server := httptest.NewTLSServer(hub)
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: agent.DefaultNamespace,
		Name: agent.DefaultBootstrapSecret}}
	secret.Data = map[string][]byte{"kubeconfig": fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: hub, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: bootstrap, user: {token: bootstrap-secret}}]
contexts: [{name: hub, context: {cluster: hub, user: bootstrap}}]
current-context: hub
`, server.URL, base64.StdEncoding.EncodeToString(ca))}
	agent, err := agent.New(agent.Options{Cluster: "cluster1", Driver: &sharedToken{asked: map[string]bool{}},
		Local: fake.NewClientBuilder().WithScheme(regtest.Scheme(t)).WithObjects(secret).Build()})
	regtest.Must(t, err)
	_, err = agent.Reconcile(t.Context(), reconcile.Request{})
	return err
}

// The agent follows no redirect of the hub with its credential.
func TestAgentFollowsNoRedirect(t *testing.T) {
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		elsewhere.Add(1)
		http.Error(w, "what the agent must not read", http.StatusInternalServerError)
	}))
	defer other.Close()
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			err := reconcileAgainst(t, func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, other.URL+r.URL.Path, status)
			})
			if err == nil || elsewhere.Load() > 0 || strings.Contains(err.Error(), "must not read") {
				t.Errorf("%d requests elsewhere, want none; error %v", elsewhere.Load(), err)
			}
		})
	}
}

func TestAgentReadsNoEndlessAnswer(t *testing.T) {
	const most = 64 << 20 // the test ends also where nothing is bounded
	sent := make(chan int, 100)
	err := reconcileAgainst(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		part, n := []byte(strings.Repeat(" ", 1<<16)), 0
		for n < most {
			wrote, err := w.Write(part)
			n += wrote
			if err != nil {
				break
			}
		}
		sent <- n
	})
	if err == nil {
		t.Error("the answer was accepted")
	}
	select {
	case n := <-sent:
		if n >= most {
			t.Errorf("the agent read %d bytes", n)
		}
	case <-time.After(time.Minute):
		t.Error("the hub still sends")
	}
}
