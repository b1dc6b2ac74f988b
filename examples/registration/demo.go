package main

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/internal/testing/scenario"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/token"
)

const cluster, neighbour, addOnName, timeFormat = "cluster1", "cluster2", "search", "2006-01-02 15:04:05 MST"

// demo plays administrators. Hub and agent run with exactly the rights of their
// manifests.
type demo struct {
	scenario.Printer
	ctx    context.Context //nolint:containedctx // ends the demo, whatever it waits for
	member *regtest.Member
	ahead  atomic.Int64 // of the agent's clock
	first  string       // request
}

func (d *demo) play(t *testing.T) {
	d.setUp(t)
	d.join(t)
	d.useCertificate(t)
	d.renew(t)
	d.registerAddOn(t)
	d.deny(t)
}

// until polls while the agent reconciles, until something is so or the demo
// ends.
func (d *demo) until(t *testing.T, what string, done func() bool) {
	t.Helper()
	d.member.Until(what, d.orEnd(t, done))
}

func (d *demo) orEnd(t *testing.T, done func() bool) func() bool {
	return func() bool {
		if d.ctx.Err() != nil {
			t.Fatal("interrupted")
		}
		return done()
	}
}

func (d *demo) setUp(t *testing.T) {
	t.Helper()
	w := regtest.NewWith(t, kubetest.StartNew(t), kubetest.StartNew(t))
	d.Step("Two control planes run.")
	d.Detail("hub", "%s", w.Hub.IssuerURL())
	d.Detail("cluster", "%s", w.Managed.IssuerURL())
	w.ServeAddOns(addon.CRD())
	w.Hub.ControllerManager(t, "csrsigning", "garbage-collector-controller")
	d.Step(
		"The manifests of the hub are applied: the kinds ManagedCluster and ManagedClusterAddOn, RBAC, and the policies that guard acceptance. " +
			"kube-controller-manager signs certificates, and removes objects whose owner is gone.")
	w.RunHub(func(mgr ctrl.Manager) (hub.Options, error) {
		driver,
			err := csr.NewHubDriver(csr.HubDriverOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(),
			BootstrapUsers: []string{regtest.BootstrapUser}})
		return hub.Options{Drivers: []registration.HubDriver{driver}, Default: registration.AuthTypeCSR}, err
	})
	w.RunControllers(regtest.Tokens(1))
	d.Step("The hub controller starts with the rights of its own ServiceAccount.")
	d.Detail("account", "%s/%s", regtest.HubNamespace, regtest.HubAccount)
	d.member = w.NewMember(cluster, "registration-agent")
	d.member.Start(agent.Options{Driver: csr.New(csr.Options{Lifetime: time.Hour}), Now: func() time.Time {
		return time.Now().Add(time.Duration(d.ahead.Load()))
	}})
	d.Step(
		"The manifests of the agent are applied to the managed cluster, and a Secret with the bootstrap credential. The agent starts. " +
			"On the hub it has nothing but the bootstrap credential.")
	d.Detail("Secret", "%s", agent.DefaultBootstrapSecret)
	d.Detail("of", "ServiceAccount %s", strings.TrimPrefix(regtest.BootstrapUser, "system:serviceaccount:"))
}

// request returns the last request of the agent.
func (d *demo) request(t *testing.T) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	for _, r := range regtest.RequestsOf(t, d.member.Admin, cluster) {
		if r.Name != d.first {
			return &r
		}
	}
	return nil
}

func (d *demo) join(t *testing.T) {
	t.Helper()
	d.until(t, "the agent asks for a certificate", func() bool { return d.request(t) != nil })
	d.Step(
		"ManagedCluster %q appears on the hub. The agent makes a key, keeps it, and asks for a certificate. The request waits.", cluster)
	d.Detail("accepted", "%t", d.member.Cluster(cluster).Spec.HubAcceptsClient)
	d.Detail("request", "%s", d.request(t).Name)
	d.Detail("asked by", "ServiceAccount %s", strings.TrimPrefix(d.request(t).Spec.Username, "system:serviceaccount:"))
	accepted := time.Now()
	d.member.SetAccepted(cluster, true)
	d.until(t, "the cluster joins", d.member.Joined)
	d.Step(
		"An administrator accepts the cluster: hubAcceptsClient is true. The hub makes a namespace and RBAC for it, and approves the request. " +
			"kube-controller-manager signs it.")
	d.Detail("namespace", "%s", cluster)
	d.Detail("ClusterRole", "%s", registration.ClusterRoleName(cluster))
	for _, c := range d.request(t).Status.Conditions {
		d.Detail(string(c.Type), "%s", c.Message)
	}
	d.Step("The agent stores its certificate and uses it from now on. The cluster has joined, %s after acceptance.",
		time.Since(accepted).Round(10*time.Millisecond))
	leaf := d.certificate(t)
	d.Detail("Secret", "%s", ocm.HubKubeconfigSecret)
	d.Detail("user (CN)", "%s", leaf.Subject.CommonName)
	for _, group := range leaf.Subject.Organization {
		d.Detail("group (O)", "%s", group)
	}
	d.Detail("expires", "%s", leaf.NotAfter.UTC().Format(timeFormat))
	for _, c := range d.member.Cluster(cluster).Status.Conditions {
		d.Detail("condition", "%s is %s", c.Type, c.Status)
	}
}

func (d *demo) certificate(t *testing.T) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(d.member.Secret().Data["tls.crt"])
	if block == nil {
		t.Fatal("the agent has stored no certificate")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

// lease reads the Lease of a cluster as the agent.
func (d *demo) lease(t *testing.T, cluster string) error {
	t.Helper()
	return d.member.Own().Get(t.Context(), client.ObjectKey{Namespace: cluster, Name: ocm.LeaseName},
		&coordinationv1.Lease{})
}

func (d *demo) useCertificate(t *testing.T) {
	t.Helper()
	if err := d.lease(t, cluster); err != nil {
		t.Fatal(err)
	}
	d.Step("With its own credential the agent reads the Lease in its own namespace: allowed.")
	other := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: neighbour},
		Spec: ocm.ManagedClusterSpec{HubAcceptsClient: true}}
	if err := d.member.Admin.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	d.until(t, "the hub grants the neighbour its rights", func() bool { return len(d.member.RBAC(neighbour)) == 4 })
	err := d.lease(t, neighbour)
	if !apierrors.IsForbidden(err) {
		t.Fatalf("the agent of %q reads in the namespace of %q: %v", cluster, neighbour, err)
	}
	d.Step("The same in the namespace of its neighbour %q: forbidden.", neighbour)
	d.Detail("answer", "%s", err)
}

// renew lets the agent see the end of its certificate.
func (d *demo) renew(t *testing.T) {
	t.Helper()
	first := d.certificate(t)
	d.first = d.request(t).Name
	d.ahead.Store(int64(time.Until(first.NotAfter) - time.Minute))
	d.until(t, "the certificate is renewed", func() bool {
		return d.certificate(t).SerialNumber.Cmp(first.SerialNumber) != 0
	})
	d.ahead.Store(0)
	d.Step(
		"The agent's clock runs ahead, to a minute before the certificate expires. The agent asks again with its own credential, " +
			"and the hub approves without a person.")
	d.Detail("asked by", "%s", d.request(t).Spec.Username)
	d.Detail("request", "%s", d.request(t).Name)
}

// registerAddOn plays the add-on's own controller on the hub, too.
func (d *demo) registerAddOn(t *testing.T) {
	t.Helper()
	driver, err := token.New(token.Options{ExpirationSeconds: 3600})
	if err != nil {
		t.Fatal(err)
	}
	m := d.member
	m.NewAddOn(addOnName, ocm.Registration{Type: ocm.KubeClient})
	d.Step(
		"An administrator creates the add-on %q for the cluster. Its controller on the hub asks for access to the hub's API server.", addOnName)
	d.Detail("item", "type %s, without driver and subject", ocm.KubeClient)
	stop := m.RunAddOns(agent.AddOnOptions{KubeClient: driver}, 1)
	kubetest.Eventually(t, "the add-on has its token", d.orEnd(t, func() bool {
		return m.Says(addOnName, "AddonTokenRefreshed") == "True/AddonTokenRefreshed"
	}))
	item, secret := m.Items(addOnName)[0], m.AddOnSecret(addOnName+"-hub-kubeconfig")
	d.Step("The agent declares the add-on's user. The hub makes a ServiceAccount for it, and the agent stores its token.")
	d.Detail("driver", "%s", item.Driver)
	d.Detail("user", "%s", item.Subject.User)
	d.Detail("hub", "%s", m.Condition(addOnName, addon.ConditionTokenInfrastructureReady).Message)
	d.Detail("Secret", "%s/%s", secret.Namespace, secret.Name)
	d.Detail("expires", "%s", secret.Data["expiration"])
	own := m.AddOnClient(addOnName)
	m.Bind(addOnName, item.Subject.User)
	list := func(namespace string) error {
		return own.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace(namespace))
	}
	if err := list(cluster); err != nil {
		t.Fatal(err)
	}
	forbidden := list(neighbour)
	if !apierrors.IsForbidden(forbidden) {
		t.Fatalf("the add-on of %q reads in the namespace of %q: %v", cluster, neighbour, forbidden)
	}
	d.Step(
		"The add-on's controller binds a Role to that user. With its token the add-on lists ConfigMaps in the namespace of its " +
			"own cluster: allowed. Elsewhere: forbidden.")
	d.Detail("answer", "%s", forbidden)
	start := time.Now()
	m.DeleteAddOn(addOnName)
	kubetest.Eventually(t, "the token is refused", d.orEnd(t, func() bool {
		return apierrors.IsUnauthorized(list(cluster)) && m.AddOnSecret(secret.Name).Name == ""
	}))
	d.Step(
		"The administrator deletes the add-on. The garbage collector removes what the hub made for it, and the agent removes its Secret.")
	d.Detail("token", "refused with 401 after %s; the API server caches tokens for 10 s",
		time.Since(start).Round(10*time.Millisecond))
	stop()
}

func (d *demo) deny(t *testing.T) {
	t.Helper()
	d.member.SetAccepted(cluster, false)
	var refused error
	kubetest.Eventually(t, "the hub takes away the access", d.orEnd(t, func() bool {
		refused = d.lease(t, cluster)
		return apierrors.IsForbidden(refused) && d.member.Reason(cluster, ocm.ConditionHubAccepted) == "False/"+
			ocm.ReasonHubDenied
	}))
	d.Step(
		"The administrator denies the cluster. The hub removes its RBAC. The certificate has not expired, but allows nothing.")
	c := meta.FindStatusCondition(d.member.Cluster(cluster).Status.Conditions, ocm.ConditionHubAccepted)
	d.Detail("condition", "%s is %s: %s", c.Type, c.Status, c.Reason)
	d.Detail("answer", "%s", refused)
}
