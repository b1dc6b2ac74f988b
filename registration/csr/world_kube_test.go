package csr_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
)

// kube is a world whose hub runs two drivers and the signer.
type kube struct {
	*regtest.World
	other   *otherDriver
	said    *regtest.Recorder
	stopHub func()
}

func newKube(t *testing.T) *kube {
	t.Helper()
	k := &kube{World: regtest.New(t), other: &otherDriver{}, said: &regtest.Recorder{}}
	k.Hub.ControllerManager(t, "csrsigning")
	k.runHub()
	return k
}

func (k *kube) runHub() {
	k.T.Helper()
	k.stopHub = k.RunHub(func(mgr ctrl.Manager) (hub.Options, error) {
		driver, err := csr.NewHubDriver(csr.HubDriverOptions{Client: mgr.GetClient(), Events: k.said,
			BootstrapUsers: []string{regtest.BootstrapUser}, BootstrapGroups: []string{registration.BootstrapGroup}, AutoApproveUsers: []string{"system:bootstrap:auto00"}})
		if err != nil {
			return hub.Options{}, err
		}
		addOns, err := csr.NewAddOnApprover(csr.AddOnApproverOptions{Client: mgr.GetClient(), Events: k.said})
		if err == nil {
			err = addOns.SetupWithManager(mgr)
		}
		return hub.Options{Drivers: []registration.HubDriver{driver, k.other}, Default: registration.AuthTypeCSR, Recorder: k.said}, err
	})
}

// otherDriver is the hub's half of an auth type that approves all clusters with its mark.
type otherDriver struct {
	mu    sync.Mutex
	calls []string
}

const otherAnnotation = "example.com/other"

func (d *otherDriver) Name() string { return "other" }

func (d *otherDriver) Claim(cluster *ocm.ManagedCluster) (string, bool, error) {
	claim, ok := cluster.Annotations[otherAnnotation]
	return claim, ok, nil
}

func (d *otherDriver) Approves(context.Context, *ocm.ManagedCluster, string) (bool, error) {
	return true, nil
}

func (d *otherDriver) Grant(_ context.Context, cluster, claim string) (time.Duration, error) {
	d.note("grant", cluster, claim)
	return 0, nil
}

func (d *otherDriver) Revoke(_ context.Context, cluster, claim string) error {
	d.note("revoke", cluster, claim)
	return nil
}

func (d *otherDriver) note(call ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, strings.Join(call, " "))
}

func (d *otherDriver) called() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

// requests returns those of a cluster.
func (k *kube) requests(cluster string) []certificatesv1.CertificateSigningRequest {
	k.T.Helper()
	var list certificatesv1.CertificateSigningRequestList
	if err := k.Admin.List(k.T.Context(), &list, client.MatchingLabels{ocm.ClusterNameLabel: cluster}); err != nil {
		k.T.Fatal(err)
	}
	return list.Items
}

func (k *kube) expectRequests(cluster string, n int) {
	k.T.Helper()
	if got := len(k.requests(cluster)); got != n {
		k.T.Errorf("cluster %q made %d requests instead of %d", cluster, got, n)
	}
}

// open returns the request that waits.
func (k *kube) open(cluster string) *certificatesv1.CertificateSigningRequest {
	k.T.Helper()
	for _, r := range k.requests(cluster) {
		if len(r.Status.Conditions) == 0 {
			return &r
		}
	}
	k.T.Fatalf("no request of cluster %q waits", cluster)
	return nil
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
	m.Start(agent.Options{Driver: csr.New(m.driver), Recorder: m.said, Now: func() time.Time { return time.Now().Add(m.ahead) }})
}

// run runs the agent in a manager.
func (m *member) run() (stop func()) {
	m.T.Helper()
	mgr, err := ctrl.NewManager(m.Config(), ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		m.T.Fatal(err)
	}
	if err := m.Agent.SetupWithManager(mgr); err != nil {
		m.T.Fatal(err)
	}
	return regtest.RunManager(m.T, mgr)
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
	m.Until("the request waits", func() bool { return m.said.Says("ClientCertificateNotApproved") && len(m.kube.requests(m.Name)) > 0 })
}

// joined reports whether the agent has reached the hub with its own certificate.
func (m *member) joined() bool {
	return m.renewed(time.Time{}) && m.Joined() &&
		m.Reason(m.Name, regname.ConditionCertificateRotated) == "True/ClientCertificateUpdated"
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

func (m *member) edit(change func(data map[string][]byte)) {
	m.T.Helper()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		secret := m.Secret()
		change(secret.Data)
		return m.Local.Update(m.T.Context(), secret)
	})
	if err != nil {
		m.T.Fatal(err)
	}
}

// ask makes a request as the driver does, without an agent.
func (k *kube) ask(cluster, agent string, hub client.Client) *certificatesv1.CertificateSigningRequest {
	k.T.Helper()
	in := registration.Input{Now: time.Now(), Cluster: cluster, Agent: agent, Hub: hub}
	before := k.requests(cluster)
	for range 2 { // draws a key, then makes the request
		step, err := csr.New(csr.Options{}).Next(k.T.Context(), in)
		if err != nil {
			k.T.Fatal(err)
		}
		in.State = step.State
	}
	for _, r := range k.requests(cluster) {
		if !slices.ContainsFunc(before, func(b certificatesv1.CertificateSigningRequest) bool { return b.Name == r.Name }) {
			return &r
		}
	}
	k.T.Fatal("no request was made")
	return nil
}

// lastOf makes the calls of a driver that draw a key and make a request, and returns the error.
func lastOf(t *testing.T, in registration.Input) (err error) {
	t.Helper()
	for range 2 {
		step, stepErr := csr.New(csr.Options{}).Next(t.Context(), in)
		in.State, err = step.State, stepErr
	}
	return err
}

// expectForbidden asks for a certificate that the admission policy lets the user not even ask for. The approver would refuse it too.
func (k *kube) expectForbidden(cluster, agent string, hub client.Client) {
	k.T.Helper()
	if err := lastOf(k.T, registration.Input{Now: time.Now(), Cluster: cluster, Agent: agent, Hub: hub}); !apierrors.IsForbidden(err) {
		k.T.Errorf("the error is %v", err)
	}
}
