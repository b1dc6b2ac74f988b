package issuercmd

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/issuer"
)

// showing returns the flag for an API server that shows the issuer's keys.
func (w *environment) showing() string {
	w.t.Helper()
	server := httptest.NewTLSServer(w.issuer)
	w.t.Cleanup(server.Close)
	return "--kubeconfig=" + w.kubeconfig(server.URL, server.Certificate().Raw)
}

func TestPublish(t *testing.T) {
	w := newEnvironment(t)
	publish := []string{"publish", "--to=file://" + w.home, "--issuer=https://oidc.example.com", w.showing()}
	published := func(path string) string {
		t.Helper()
		content, err := os.ReadFile(filepath.Join(w.home, path))
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	w.must(append(publish, "--max-token-lifetime=2h")...)
	if got := published(issuer.RecordFile); !strings.Contains(got, `"maxTokenLifetimeSeconds":7200`) {
		t.Errorf("--max-token-lifetime=2h records %s", got)
	}
	var set jose.JSONWebKeySet
	if err := json.Unmarshal([]byte(published(issuer.KeysFile)), &set); err != nil || len(set.Keys) != 1 {
		t.Fatalf("got %+v, %v, want one key", set, err)
	}
	w.must(append(publish, "--remove-key="+set.Keys[0].KeyID)...)
	if got := published(issuer.KeysFile); strings.Contains(got, set.Keys[0].KeyID) {
		t.Errorf("--remove-key leaves %s", got)
	}
}

func TestFailedCheckIsAnError(t *testing.T) {
	w := newEnvironment(t)
	out, err := w.run("check", "--issuer=https://127.0.0.1:1", w.showing())
	if code := cli.ExitCode(t.Context(), err); code != cli.ExitUnavailable && code != cli.ExitMisconfigured ||
		!strings.Contains(out, "FAIL") {
		t.Errorf("got %v and %q, want a failed check and its code", err, out)
	}
}
