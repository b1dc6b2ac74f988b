package csr_test

import (
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
)

// kube is an environment whose hub runs two drivers and the signer.
type kube struct {
	*regtest.Environment
	said    *regtest.Recorder
	stopHub func()
	relay   bool // of the hub's options
}

func newKube(t *testing.T) *kube {
	t.Helper()
	return newKubeWith(t, kubetest.Start(t))
}

func newKubeWith(t *testing.T, hub *kubetest.Cluster) *kube {
	t.Helper()
	k := &kube{Environment: regtest.NewWith(t, hub, kubetest.StartSecond(t)), said: &regtest.Recorder{}}
	k.Hub.ControllerManager(t, "csrsigning")
	k.runHub()
	return k
}

func (k *kube) runHub(change ...func(*csr.HubDriverOptions)) {
	k.T.Helper()
	k.stopHub = k.RunHub(func(mgr ctrl.Manager) (hub.Options, error) {
		options := csr.HubDriverOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: k.said,
			BootstrapUsers: []string{regtest.BootstrapUser}, BootstrapGroups: []string{registration.BootstrapGroup},
			AutoApproveUsers: []string{"system:bootstrap:auto00"}}
		for _, c := range change {
			c(&options)
		}
		driver, err := csr.NewHubDriver(options)
		if err != nil {
			return hub.Options{}, err
		}
		addOns,
			err := csr.NewAddOnApprover(csr.AddOnApproverOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(),
			Events: k.said})
		if err == nil {
			err = addOns.SetupWithManager(mgr)
		}
		return hub.Options{Drivers: []registration.HubDriver{driver}, Default: registration.AuthTypeCSR, Recorder: k.said,
			Relay: k.relay}, err
	})
}

// requests returns those of a cluster.
func (k *kube) requests(cluster string) []certificatesv1.CertificateSigningRequest {
	k.T.Helper()
	return regtest.RequestsOf(k.T, k.Admin, cluster)
}

func (k *kube) expectRequests(cluster string, n int) {
	k.T.Helper()
	if got := len(k.requests(cluster)); got != n {
		k.T.Errorf("cluster %q made %d requests instead of %d", cluster, got, n)
	}
}

func (k *kube) acceptAlone(cluster string) {
	k.T.Helper()
	k.SetAccepted(cluster, true)
	regtest.Eventually(k.T, "the hub accepts", func() bool {
		return k.Reason(cluster, ocm.ConditionHubAccepted) == "True/HubClusterAdminAccepted"
	})
}

// member is a managed cluster whose agent uses csr.
type member struct {
	*regtest.Member
	kube   *kube
	ahead  time.Duration // of the agent's clock
	driver csr.Options
	said   *regtest.Recorder
}

func (k *kube) join(name string) *member {
	k.T.Helper()
	m := &member{Member: k.NewMember(name, "registration-agent"), kube: k, said: &regtest.Recorder{}}
	m.restart()
	return m
}

// restart is a new process of the agent.
func (m *member) restart() {
	m.T.Helper()
	m.Start(agent.Options{Driver: csr.New(m.driver), Recorder: m.said, Now: func() time.Time {
		return time.Now().Add(m.ahead)
	}})
}

// reconciles makes some reconciles that must succeed.
func (m *member) reconciles() {
	m.T.Helper()
	const some = 20
	for range some {
		if m.Reconcile(); m.Failed != nil {
			m.T.Fatal(m.Failed)
		}
	}
}

// pending reconciles until the cluster waits for acceptance.
func (m *member) pending() {
	m.T.Helper()
	m.Until("the request waits", func() bool {
		return m.said.Says("ClientCertificateNotApproved") && len(m.kube.requests(m.Name)) > 0
	})
}

// joined reports whether the agent has reached the hub with its own
// certificate.
func (m *member) joined() bool {
	return m.renewed(time.Time{}) && m.Joined() &&
		m.Reason(m.Name, ocm.ConditionCertificateRotated) == "True/ClientCertificateUpdated"
}

// renewed reports whether the Lease was renewed after a time.
func (m *member) renewed(since time.Time) bool {
	lease := &coordinationv1.Lease{}
	err := m.Admin.Get(m.T.Context(), client.ObjectKey{Namespace: m.Name, Name: ocm.LeaseName}, lease)
	return err == nil && lease.Spec.RenewTime.After(since)
}

// accept lets a waiting cluster in.
func (m *member) accept() {
	m.T.Helper()
	m.pending()
	m.SetAccepted(m.Name, true)
	m.Until("the cluster joins", m.joined)
}

func (m *member) certificate() string { m.T.Helper(); return string(m.Secret().Data["tls.crt"]) }

// ask makes a request as the driver does, without an agent.
func (k *kube) ask(cluster, agent string, hub client.Client) *certificatesv1.CertificateSigningRequest {
	k.T.Helper()
	name := regtest.Ask(k.T, k.Admin, hub, cluster, agent)
	request := &certificatesv1.CertificateSigningRequest{}
	regtest.Must(k.T, k.Admin.Get(k.T.Context(), client.ObjectKey{Name: name}, request))
	return request
}
