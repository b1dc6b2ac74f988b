package kubetest

import (
	"os"
	"testing"
)

// Restart ends the API server as a rolling update does, with SIGTERM, calls
// meanwhile (which may be nil) while no client listens, and starts it again:
// with the same data, address, keys, certificates and users. It returns when
// the API server is ready. Clients and tokens stay good; connections and
// watches are cut.
//
// Not for the cluster that tests share, unless no other test runs.
func (c *Cluster) Restart(t testing.TB, meanwhile func()) {
	t.Helper()
	server := c.APIServer()
	trusted, err := os.ReadFile(c.ClientCA()) // envtest resets the file to its own authority
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	if meanwhile != nil {
		meanwhile()
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.ClientCA(), trusted, 0o600); err != nil { //nolint:gosec // a path of our own
		t.Fatal(err)
	}
	if err := c.WaitReady(); err != nil {
		t.Fatal(err)
	}
}
