package awsirsa_test

import (
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/token"
)

// Two of the six combinations of the proposal's table. Package token tests the other four. A hub on EKS issues no certificates, so those are
// of a hub elsewhere.
func TestAddOnCombinations(t *testing.T) {
	tokens, err := token.New(token.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, cluster string
		binding       awsirsa.Binding
		driver        registration.Driver
		viaRelay      bool
	}{
		{"cluster by aws-irsa, add-on by csr", "row3", awsirsa.AWSAuth, csr.New(csr.Options{}), false},
		{"cluster by aws-irsa, add-on by token", "row4", awsirsa.AWSAuth, tokens, false},
		{"cluster by aws-irsa on EKS, add-on by token", "row4-eks", awsirsa.AccessEntries, tokens, false},
		{"cluster by aws-irsa on EKS through the relay, add-on by token", "row7", awsirsa.AccessEntries, tokens, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k := newKube(t, tc.binding)
			defer k.finish()
			k.ServeAddOns(addon.CRD())
			defer k.RunControllers(regtest.Tokens(2), regtest.Approver(k.said))()
			m := k.join(tc.cluster)
			if tc.viaRelay {
				k.RelayRights("") // none, as all agents have tokens
				relay := k.RunRelay()
				m.WriteBootstrap(relay.Host, relay.CAData)
				defer func() {
					config, err := regtest.CredentialOf(m.AddOnSecret("search-hub-kubeconfig"))
					if err != nil || "https://"+strings.TrimPrefix(config.Host, "https://") != relay.Host {
						t.Errorf("the add-on uses %q, %v", config.Host, err)
					}
				}()
			}
			m.accept()
			defer m.RunAddOns(agent.AddOnOptions{KubeClient: tc.driver}, 2)() // the next one has another environment
			m.NewAddOn("search", ocm.Registration{Type: ocm.KubeClient})
			m.Registered("search", tc.driver.Name())
			m.ExpectOnlyOwnRights("search")
		})
	}
}
