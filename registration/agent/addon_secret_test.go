package agent_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

func TestAddOnsTakeOverTheSecretsOfAnOCMAgent(t *testing.T) {
	for name, row := range map[string]struct {
		cluster, server string
		labels          map[string]string
		taken           bool
	}{
		"of this cluster":    {cluster: "cluster1", server: "https://hub.example.com:6443"},
		"of another cluster": {cluster: "cluster2", server: "https://hub.example.com:6443", taken: true},
		"of another hub":     {cluster: "cluster1", server: "https://other.example.com", taken: true},
		"with labels of another tool": {cluster: "cluster1", server: "https://hub.example.com:6443",
			labels: map[string]string{"app": "search"}, taken: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newAddOnEnvironment(t)
			w.create("a", kubeClient)
			w.put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: addOnNamespace, Name: "a-hub-kubeconfig",
				Labels: row.labels},
				Data: map[string][]byte{"cluster-name": []byte(row.cluster), "tls.crt": []byte("old"),
					"kubeconfig": fmt.Appendf(nil,
						`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"a","cluster":{"server":%q}}]}`, row.server)}})
			w.mustReconcile("a")
			w.mustReconcile("a")
			if c := w.condition("a", "RegistrationAccepted"); (c.Reason == "SecretTaken") != row.taken {
				t.Errorf("condition %+v", c)
			}
			secret := w.secretIn(addOnNamespace, "a-hub-kubeconfig")
			if ours := secret.Labels[addon.NameLabel] == "a" && len(secret.Data["token"]) > 0; ours == row.taken {
				t.Errorf("the Secret is %+v", secret)
			}
		})
	}
}

func TestAddOnsRemoveSecrets(t *testing.T) {
	mine := func(labels map[string]string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: addOnNamespace, Name: "a-mine", Labels: labels}}
	}
	signerSecret := "a-example.com-signer-client-cert"
	t.Run("of an item that was removed", func(t *testing.T) {
		w := newAddOnEnvironment(t)
		w.register("a", kubeClient, customSigner)
		w.change("a", func(s *addon.Status) { s.Items = s.Items[:1] })
		w.mustReconcile("a")
		if w.keys(signerSecret) != nil || w.keys("a-hub-kubeconfig") == nil {
			t.Errorf("left: %q, %q", w.keys(signerSecret), w.keys("a-hub-kubeconfig"))
		}
	})
	t.Run("of an item that is refused they stay", func(t *testing.T) {
		w := newAddOnEnvironment(t)
		w.register("a", customSigner)
		w.addOnOptions.CustomSigner = nil
		w.restart()
		w.mustReconcile("a")
		w.namespace("a", "kube-system")
		w.mustReconcile("a")
		if w.keys(signerSecret) == nil {
			t.Error("the Secret was removed")
		}
	})
	t.Run("of an add-on that was deleted while the agent was away", func(t *testing.T) {
		w := newAddOnEnvironment(t)
		w.put(mine(map[string]string{addon.NameLabel: "a"}))
		w.register("a", kubeClient, customSigner)
		w.register("b", kubeClient)
		regtest.Must(t, w.hub.Delete(t.Context(), w.get("a")))
		w.restart()
		w.mustReconcile("a")
		if w.keys("a-hub-kubeconfig") != nil || w.keys(signerSecret) != nil {
			t.Error("Secrets are left")
		}
		if !slices.Equal(w.driver.forgotten, []string{"a"}) || !slices.Equal(w.signer.forgotten, []string{"a"}) {
			t.Errorf("the drivers forgot %q, %q", w.driver.forgotten, w.signer.forgotten)
		}
		if w.keys("b-hub-kubeconfig") == nil || w.secretIn(addOnNamespace, "a-mine").Name == "" {
			t.Error("Secrets of others are gone")
		}
	})
	t.Run("in the old namespace, once the new one has a credential", func(t *testing.T) {
		w := newAddOnEnvironment(t)
		w.register("a", kubeClient)
		w.namespace("a", "other")
		w.driver.hold = true
		w.mustReconcile("a")
		if w.keys("a-hub-kubeconfig") == nil {
			t.Error("the add-on has no credential")
		}
		w.driver.hold = false
		w.mustReconcile("a")
		if w.keys("a-hub-kubeconfig") != nil || w.secretIn("other", "a-hub-kubeconfig").Name == "" {
			t.Error("the Secret was not moved")
		}
		regtest.Must(t, w.hub.Delete(t.Context(), w.get("a")))
		w.mustReconcile("a")
		if w.secretIn("other", "a-hub-kubeconfig").Name != "" {
			t.Error("the Secret is left")
		}
	})
}

// The driver brings its credential again after an edit of the Secret, and never
// sees an edited kubeconfig.
func TestAddOnsMendTheirSecrets(t *testing.T) {
	w := newAddOnEnvironment(t)
	w.register("a", kubeClient)
	edit := func(change func(map[string][]byte)) {
		t.Helper()
		s := w.secretIn(addOnNamespace, "a-hub-kubeconfig")
		change(s.Data)
		regtest.Must(t, w.local.Update(t.Context(), s))
		w.mustReconcile("a")
	}
	edit(func(d map[string][]byte) { d["cluster-name"], d["agent-name"] = []byte("x"), []byte("y") })
	if got := w.secretIn(addOnNamespace, "a-hub-kubeconfig").Data; string(got["cluster-name"]) != "cluster1" ||
		string(got["agent-name"]) != string(w.secret().Data["agent-name"]) {
		t.Errorf("names %q, %q", got["cluster-name"], got["agent-name"])
	}
	edit(func(d map[string][]byte) { d["kubeconfig"] = []byte("users: [{exec: {command: sh}}]") })
	if len(w.driver.in.Stored["kubeconfig"]) > 0 || len(w.driver.in.Stored["token"]) == 0 {
		t.Errorf("the driver saw %q", w.driver.in.Stored)
	}
	s := w.secretIn(addOnNamespace, "a-hub-kubeconfig")
	regtest.Must(t, w.local.Delete(t.Context(), s))
	w.mustReconcile("a")
	if w.keys("a-hub-kubeconfig") == nil || w.driver.issued != 2 {
		t.Errorf("%d tokens after deletion, want 2", w.driver.issued)
	}
}
