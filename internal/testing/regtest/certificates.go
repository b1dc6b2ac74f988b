package regtest

import (
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
)

// Certificates configures a hub with the driver csr, for RunHub.
func Certificates(said events.EventRecorder,
	change ...func(*csr.HubDriverOptions)) func(ctrl.Manager) (hub.Options, error) {
	return func(mgr ctrl.Manager) (hub.Options, error) {
		options := csr.HubDriverOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: said,
			BootstrapUsers: []string{BootstrapUser}, BootstrapGroups: []string{registration.BootstrapGroup}}
		for _, f := range change {
			f(&options)
		}
		driver, err := csr.NewHubDriver(options)
		return hub.Options{Drivers: []registration.HubDriver{driver}, Default: registration.AuthTypeCSR,
			Recorder: said}, err
	}
}

// Accept lets a cluster in, and waits until the hub has given it its rights.
func (w *Environment) Accept(cluster string) {
	w.T.Helper()
	w.SetAccepted(cluster, true)
	w.AwaitReason(cluster, ocm.ConditionHubAccepted, ocm.ReasonHubAccepted)
}

// Enroll leaves what a join leaves on the hub: an accepted cluster that has a
// certificate, and the configuration of its agent. The hub runs the driver csr
// and the signer.
func (w *Environment) Enroll(cluster string) *rest.Config {
	w.T.Helper()
	Must(w.T, w.Admin.Create(w.T.Context(), &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}}))
	w.Accept(cluster)
	in := registration.Input{Now: time.Now(), Cluster: cluster, Agent: "agent1", Hub: w.As(BootstrapUser)}
	config := rest.AnonymousClientConfig(w.Hub.Config())
	kubetest.Eventually(w.T, "cluster "+cluster+" has a certificate", func() bool {
		step, err := csr.New(csr.Options{}).Next(w.T.Context(), in)
		Must(w.T, err)
		in.State = step.State
		if step.Credential == nil {
			return false
		}
		config.CertData, config.KeyData = step.Credential.Files["tls.crt"], step.Credential.Files["tls.key"]
		return true
	})
	return config
}

// AsAgent returns a client of the hub with the user and groups of an agent that
// Enroll has left.
func (w *Environment) AsAgent(cluster string) client.WithWatch {
	w.T.Helper()
	return w.As(registration.AgentUser(cluster, "agent1"), registration.ClusterGroup(cluster), ocm.ManagedClustersGroup)
}

// Request makes a request for a certificate as an agent does, and returns it.
func (w *Environment) Request(cluster, agent string, user client.Client) *certificatesv1.CertificateSigningRequest {
	w.T.Helper()
	name := Ask(w.T, w.Admin, user, cluster, agent)
	request := &certificatesv1.CertificateSigningRequest{}
	Must(w.T, w.Admin.Get(w.T.Context(), client.ObjectKey{Name: name}, request))
	return request
}
