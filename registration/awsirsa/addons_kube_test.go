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

// Two of the six combinations of the proposal's table. Package token tests the
// others. A hub on EKS issues no certificates, so those are of a hub
// elsewhere.
func TestAddOnCombinations(t *testing.T) {
	tokens, err := token.New(token.Options{})
	regtest.Must(t, err)
	type row struct {
		name, cluster string
		driver        registration.Driver
		viaRelay      bool
	}
	for binding, rows := range map[awsirsa.Binding][]row{
		awsirsa.AWSAuth: {
			{"cluster by aws-irsa, add-on by csr", "row3", csr.New(csr.Options{}), false},
			{"cluster by aws-irsa, add-on by token", "row4", tokens, false},
		},
		awsirsa.AccessEntries: {
			{"cluster by aws-irsa on EKS through the relay, add-on by token", "row7", tokens, true},
		},
	} {
		t.Run("binding "+string(binding), func(t *testing.T) {
			k := newKube(t, binding)
			defer k.finish()
			k.ServeAddOns(addon.CRD())
			defer k.RunControllers(regtest.Tokens(2), regtest.Approver(k.said))()
			for _, r := range rows {
				k.Step(r.name, func(t *testing.T) { k.testAddOn(t, r.cluster, r.driver, r.viaRelay) })
			}
		})
	}
}

func (k *kube) testAddOn(t *testing.T, cluster string, driver registration.Driver, viaRelay bool) {
	m := k.join(cluster)
	if viaRelay {
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
	defer m.RunAddOns(agent.AddOnOptions{KubeClient: driver}, 2)() // the next one has another environment
	m.NewAddOn("search", ocm.Registration{Type: ocm.KubeClient})
	m.Registered("search", driver.Name())
	m.ExpectOnlyOwnRights("search")
}
