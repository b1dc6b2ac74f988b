package hubcmd

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/registration/manifests"
)

func TestRelayForTheVersionOfTheHub(t *testing.T) {
	for version, want := range map[string]manifests.Relay{
		"v1.37.2":             manifests.RelayConstrained,
		"v1.36.0-eks-1a2b3c4": manifests.RelayConstrained,
		"v1.36.1+k3s1":        manifests.RelayConstrained,
		"v1.35.9":             manifests.RelayLegacy,
		"devel":               manifests.RelayLegacy,
	} {
		t.Run(version, func(t *testing.T) {
			hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintf(w, `{"gitVersion":%q}`, version) }))
			defer hub.Close()
			cmd, log := &cobra.Command{}, &bytes.Buffer{}
			cmd.SetErr(log)
			got, err := relayFor(cmd, &rest.Config{Host: hub.URL})
			if err != nil || got != want || (want == manifests.RelayLegacy) != strings.Contains(log.String(), "protect it like an administrator's") {
				t.Errorf("%q, %v, %s", got, err, log)
			}
		})
	}
}

func TestRelayForAHubThatDoesNotAnswer(t *testing.T) {
	hub := httptest.NewServer(http.NotFoundHandler())
	defer hub.Close()
	if got, err := relayFor(&cobra.Command{}, &rest.Config{Host: hub.URL}); err == nil || got != "" {
		t.Errorf("%q, %v", got, err)
	}
}
