package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/internal/testing/document"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
)

// A cluster joins through the relay by the page's commands, and neither the page's last ones nor an uninstall
// leave anything of the relay.
func TestDocumentedRelay(t *testing.T) {
	w := newHubWorld(t, "namespace")
	w.runKubelet()
	must(t, "bootstrap", "publish", "--kubeconfig="+w.hubKubeconfig)
	d := w.document(document.Read(t, "docs/registration.md").Section("Relay"))
	cert, key := regtest.ServingCertificate(t, d.programs.home)
	d.next("wid hub init")
	for _, begins := range []string{
		"kubectl --context hub -n open-cluster-management-relay create secret tls",
		"kubectl --context hub -n open-cluster-management-relay patch service",
		"kubectl --context hub -n open-cluster-management-relay rollout status",
	} {
		d.next(begins)
	}
	relay := regtest.RunRelay(t, w.cluster, cert, key)
	if err := os.WriteFile(filepath.Join(d.programs.home, "relay-ca.crt"), relay.CAData, 0o600); err != nil {
		t.Fatal(err)
	}
	stopHub := w.runHub(hub.Options{Relay: true})
	token := joinVariables(t, must(t, "hub", "token", w.onHub))[0]
	d.next("wid join", token, "RELAY="+relay.Host)
	stopAgent := w.runAgent("managed-0")
	d.next("wid hub accept")
	w.until("the cluster is available", func() bool { return statusOf(t, w.onHub)[0].Available == "True" })
	own := &corev1.Secret{}
	if err := w.managed.Get(t.Context(), client.ObjectKey{Namespace: agent.DefaultNamespace, Name: ocm.HubKubeconfigSecret}, own); err != nil {
		t.Fatal(err)
	}
	used, err := regtest.CredentialOf(own)
	if err != nil || used.Host != relay.Host {
		t.Errorf("the agent uses %+v, %v", used, err)
	}
	stopAgent()
	stopHub()
	w.runHub(hub.Options{})
	w.until("the hub takes the relay's rights", func() bool { return len(w.rolesOfRelay()) == 2 }) // the manifests'
	d.next("wid hub init")
	for range 3 {
		d.next("kubectl --context hub")
	}
	d.expectAllTried()
	if left := w.rolesOfRelay(); len(left) > 0 {
		t.Errorf("left are %q", left)
	}
	must(t, "hub", "init", w.onHub, "--image=x", "--relay", "--apply", "--yes")
	must(t, "hub", "init", w.onHub, "--uninstall")
	gone := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: regname.RelayNamespace}}
	w.until("the uninstall removes the relay", func() bool {
		return len(w.rolesOfRelay()) == 0 && apierrors.IsNotFound(w.hub.Get(t.Context(), client.ObjectKeyFromObject(gone), gone))
	})
}

// rolesOfRelay are the ClusterRoles that belong to the relay.
func (w *hubWorld) rolesOfRelay() (names []string) {
	w.t.Helper()
	var list rbacv1.ClusterRoleList
	if err := w.hub.List(w.t.Context(), &list); err != nil {
		w.t.Fatal(err)
	}
	for _, role := range list.Items {
		if strings.HasSuffix(role.Name, ":relay") {
			names = append(names, role.Name)
		}
	}
	return names
}
