package registration_test

import (
	"context"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/reporttest"
	examine "github.com/workloadid/workloadid/internal/doctor/registration"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
)

// moved finds the agent's objects in the namespace that the agent has in the test.
type moved struct {
	client.Reader
	namespace string
}

func (m moved) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if key.Namespace == agent.DefaultNamespace {
		key.Namespace = m.namespace
	}
	return m.Reader.Get(ctx, key, obj, opts...)
}

// deploy creates the agent's Deployment. Its program runs in this process.
func deploy(t *testing.T, c client.Client, namespace, cluster string) {
	t.Helper()
	labels := map[string]string{"app": "agent"}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "registration-agent"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "agent", Image: "agent", Args: []string{"--cluster-name=" + cluster}}}}}}}
	if err := c.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	d.Status = appsv1.DeploymentStatus{Replicas: 1, ReadyReplicas: 1, AvailableReplicas: 1}
	if err := c.Status().Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

// The hub, the agent and the driver are those of this module, on two real API servers.
func TestJoinWithOwnHub(t *testing.T) {
	w := regtest.New(t)
	w.Hub.ControllerManager(t, "csrsigning")
	w.RunHub(func(mgr ctrl.Manager) (hub.Options, error) {
		driver, err := csr.NewHubDriver(csr.HubDriverOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), BootstrapUsers: []string{regtest.BootstrapUser}})
		return hub.Options{Drivers: []registration.HubDriver{driver}, Default: registration.AuthTypeCSR}, err
	})
	const name = "examined"
	m := w.NewMember(name, "registration-agent")
	config := examine.Config{ClusterName: name, Hub: w.Admin, Spoke: moved{w.Local, m.Namespace}}
	headline := func(check, class string) {
		t.Helper()
		reporttest.Headline(t, examine.Run(t.Context(), config), reporttest.Want{Check: check, Class: class}, "eyJhbGci", "PRIVATE KEY")
	}
	headline("agent", "AgentMissing")
	deploy(t, w.Local, m.Namespace, name)
	headline("hub", "AgentNeverArrived")

	m.Start(agent.Options{Driver: csr.New(csr.Options{}), Version: func(context.Context) (string, error) { return "v1.36.0", nil }})
	m.Until("the ManagedCluster appears", func() bool {
		return !apierrors.IsNotFound(w.Admin.Get(t.Context(), client.ObjectKey{Name: name}, &ocm.ManagedCluster{}))
	})
	headline("accept", "NotAccepted")

	w.SetAccepted(name, true)
	m.Until("the cluster joins", m.Joined)
	report := examine.Run(t.Context(), config)
	for deadline := time.Now().Add(time.Minute); report.ExitCode() != doctor.ExitPass && time.Now().Before(deadline); report = examine.Run(t.Context(), config) {
		m.Reconcile() // renews the Lease
	}
	reporttest.Healthy(t, report)

	w.SetAccepted(name, false)
	regtest.Eventually(t, "the hub denies", func() bool { return w.Reason(name, ocm.ConditionHubAccepted) == "False/HubClusterAdminDenied" })
	headline("accept", "HubClusterAdminDenied")
}
