package csr_test

import (
	"testing"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/hub"
)

// kube is a hub that runs the driver csr and the signer. No cluster is managed.
type kube struct {
	*regtest.Environment
	said    *regtest.Recorder
	stopHub func()
	relay   bool // of the hub's options
}

func newKube(t *testing.T, cluster *kubetest.Cluster) *kube {
	t.Helper()
	k := &kube{Environment: regtest.NewWith(t, cluster, cluster), said: &regtest.Recorder{}}
	k.Hub.ControllerManager(t, "csrsigning")
	return k
}

func (k *kube) runHub(change ...func(*csr.HubDriverOptions)) {
	k.T.Helper()
	k.stopHub = k.RunHub(func(mgr ctrl.Manager) (hub.Options, error) {
		options, err := regtest.Certificates(k.said, change...)(mgr)
		options.Relay = k.relay
		return options, err
	})
}

// relayRights are those of a relay by one manifest, until the test ends.
func (k *kube) relayRights(manifest string) *rest.Config {
	k.T.Helper()
	t := k.T
	t.Cleanup(func() { kubetest.Delete(t, k.Admin, manifest) })
	return k.RelayRights(manifest)
}
