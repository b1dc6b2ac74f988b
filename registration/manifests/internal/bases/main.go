// Command bases writes the kustomize bases of hub and agent below a folder, for
// make generate.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/manifests"
)

func main() {
	if err := write("config"); err != nil {
		fmt.Fprintln(os.Stderr, "bases:", err)
		os.Exit(1)
	}
}

func write(dir string) error {
	files, err := files()
	if err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), //nolint:gosec // the mode that git records
			0o644); err != nil {
			return err
		}
	}
	return nil
}

const header = "# Written by make generate from package registration/manifests.\n"

// files returns the content of files by path. Each base has a
// kustomization.yaml that sets the tag of its image.
func files() (map[string]string, error) {
	hub,
		err := manifests.Hub(manifests.HubOptions{Image: "ghcr.io/workloadid/wid-hub",
		AuthTypes:      []string{registration.AuthTypeCSR},
		AddOnAuthTypes: []string{registration.AuthTypeCSR, registration.AuthTypeToken}})
	if err != nil {
		return nil, err
	}
	relay, err := manifests.RelayBase("ghcr.io/workloadid/wid-hub")
	if err != nil {
		return nil, err
	}
	agent,
		err := manifests.Agent(manifests.AgentOptions{Image: "ghcr.io/workloadid/wid-agent", Cluster: "$(CLUSTER_NAME)",
		AuthType:      registration.AuthTypeCSR,
		AddOnAuthType: registration.AuthTypeToken})
	return map[string]string{"hub/hub.yaml": header + hub, "hub/relay/relay.yaml": header + relay,
		"agent/agent.yaml": header + agent}, err
}
