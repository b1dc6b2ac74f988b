package agent_test

import (
	"bytes"
	"maps"
	"testing"
)

// Another name of a context is no reason for another credential: Open Cluster
// Management's agent takes it for one.
func TestAgentRenamesItsContextAndKeepsItsCredential(t *testing.T) {
	w := newAgentEnvironment(t)
	w.join()
	want, asked := w.secret().Data, maps.Clone(w.driver.asked)
	w.edit(func(d map[string][]byte) {
		for _, name := range []string{"default-context", "default-auth", "configuration"} {
			d["kubeconfig"] = bytes.ReplaceAll(d["kubeconfig"], []byte(name), []byte("former"))
		}
	})
	if bytes.Equal(w.secret().Data["kubeconfig"], want["kubeconfig"]) {
		t.Fatalf("the kubeconfig has other names:\n%s", want["kubeconfig"])
	}
	w.restart()
	w.mustReconcile()
	if got := w.secret().Data; !maps.EqualFunc(got, want, bytes.Equal) || !maps.Equal(w.driver.asked, asked) {
		t.Errorf("the Secret holds %q, want %q; asked %v, before %v", got, want, w.driver.asked, asked)
	}
}
