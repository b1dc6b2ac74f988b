package agent_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
)

func TestAgentMendsItsSecret(t *testing.T) {
	for name, change := range map[string]func(data map[string][]byte){
		"address edited": func(d map[string][]byte) {
			d["kubeconfig"] = []byte(strings.ReplaceAll(string(d["kubeconfig"]), "hub.example.com", "attacker.example.com"))
		},
		"kubeconfig cut":     func(d map[string][]byte) { d["kubeconfig"] = d["kubeconfig"][:20] },
		"kubeconfig deleted": func(d map[string][]byte) { delete(d, "kubeconfig") },
		"names a host's file": func(d map[string][]byte) {
			d["kubeconfig"] = fmt.Appendf(nil, userKubeconfig, "tokenFile: /etc/passwd")
		},
		"runs a program": func(d map[string][]byte) {
			d["kubeconfig"] = fmt.Appendf(nil, userKubeconfig,
				"exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, interactiveMode: Never}")
		},
		"certificate edited": func(d map[string][]byte) {
			d["kubeconfig"] = fmt.Appendf(nil, userKubeconfig, "client-certificate-data: YQ==, client-key-data: Yg==")
		},
		"state of other drivers": func(d map[string][]byte) {
			d["state.shared-token.a"], d["state.other.b"] = []byte("a"), []byte("b")
		},
		"token edited":      func(d map[string][]byte) { d["shared"] = []byte("nonsense") },
		"token deleted":     func(d map[string][]byte) { delete(d, "shared") },
		"agent name broken": func(d map[string][]byte) { d["agent-name"] = []byte("A:B") },
		"everything gone":   func(d map[string][]byte) { clear(d) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newAgentEnvironment(t)
			w.join()
			want := w.secret().Data
			w.edit(change)
			w.restart()
			w.mustReconcile()
			for _, config := range w.built {
				if config.Host != "https://hub.example.com:6443" || config.ExecProvider != nil || config.BearerTokenFile != "" {
					t.Errorf("the agent used %+v", config)
				}
			}
			got := w.secret().Data
			if string(got["agent-name"]) != string(want["agent-name"]) { // the token is made of it
				want = nil
			}
			if len(got["shared"]) == 0 || len(got["kubeconfig"]) == 0 ||
				(want != nil && string(got["kubeconfig"]) != string(want["kubeconfig"])) {
				t.Errorf("the Secret holds %q, want %q", got, want)
			}
			keys := []string{"agent-name", "auth-type", "cluster-name", "kubeconfig", "shared"}
			if have := slices.Sorted(maps.Keys(got)); !slices.Equal(have, keys) ||
				registration.CheckAgentName(string(got["agent-name"])) != nil {
				t.Errorf("keys %q, agent name %q", have, got["agent-name"])
			}
			w.writes = nil
			w.mustReconcile()
			if len(w.writes) > 0 {
				t.Errorf("it comes to no rest: %q", w.writes)
			}
		})
	}
}

const userKubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: hub, cluster: {server: "https://hub.example.com:6443"}}]
users: [{name: agent, user: {%s}}]
contexts: [{name: hub, context: {cluster: hub, user: agent}}]
current-context: hub
`

func TestAgentKeepsTheAgentName(t *testing.T) {
	w := newAgentEnvironment(t)
	w.join()
	name := string(w.secret().Data["agent-name"])
	w.edit(func(d map[string][]byte) {
		maps.DeleteFunc(d, func(key string, _ []byte) bool { return key != "agent-name" })
	})
	w.restart()
	w.mustReconcile()
	if got := string(w.secret().Data["agent-name"]); got != name || !w.driver.asked[name+"-0"] {
		t.Errorf("the agent is now %q, was %q", got, name)
	}
}

func TestAgentRejoinsWhenTheSecretIsDeleted(t *testing.T) {
	w := newAgentEnvironment(t)
	w.join()
	regtest.Must(t, w.local.Delete(t.Context(), w.secret()))
	w.mustReconcile()
	if s := w.secret(); s == nil || len(s.Data["shared"]) == 0 || len(w.driver.asked) != 2 {
		t.Errorf("requests %v, Secret %v", w.driver.asked, s != nil)
	}
}

func TestAgentRefusesTheSecretOfAnotherCluster(t *testing.T) {
	w := newAgentEnvironment(t)
	w.join()
	w.edit(func(d map[string][]byte) { d["cluster-name"] = []byte("cluster10") })
	if _, err := w.reconcile(); err == nil || !strings.Contains(err.Error(), `"cluster10"`) ||
		!strings.Contains(err.Error(), "delete it") || len(w.writes) > 0 {
		t.Errorf("got %v and writes %q", err, w.writes)
	}
}

func TestAgentOverwritesNoChangeOfTheSecret(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, "a", nil)
	w := newAgentEnvironment(t)
	w.join()
	w.edit(func(d map[string][]byte) { delete(d, "kubeconfig") })
	w.fault = func(int) error { return conflict }
	if after := w.mustReconcile(); after != time.Second || len(w.secret().Data["kubeconfig"]) > 0 {
		t.Errorf("after a conflict it comes back after %s", after)
	}
	w.fault = nil
	w.mustReconcile()
	w.driver.err = conflict // not of the Secret
	if _, err := w.reconcile(); !errors.Is(err, conflict) {
		t.Errorf("the driver's conflict became %v", err)
	}
}
