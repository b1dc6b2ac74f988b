package agent_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/ocm/addon/v1alpha1"
)

// addOnDriver declares itself, draws a nonce, and then gets a credential whose
// file has the driver's name.
type addOnDriver struct {
	name      string
	condition string
	life      time.Duration // 0 means for ever

	mu        sync.Mutex
	issued    int
	hold      bool // gives no credential
	fail      error
	in        registration.Input
	forgotten []string
}

func (d *addOnDriver) Forget(addOn string) {
	d.set(func() { d.forgotten = append(d.forgotten, addOn) })
}

func (d *addOnDriver) Name() string { return d.name }

func (d *addOnDriver) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

func (d *addOnDriver) Next(_ context.Context, in registration.Input) (registration.Step, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.in = in
	if d.fail != nil {
		return registration.Step{}, d.fail
	}
	want := in.Item
	want.Subject.User = d.name + ":" + in.Cluster + ":" + in.Addon
	if in.Item.Type == ocm.KubeClient {
		want.Driver = d.name
	}
	step := registration.Step{Declare: &want, Condition: d.tell(metav1.ConditionFalse, "NotIssued")}
	expiry, err := time.Parse(time.RFC3339, string(in.Stored["expiry"]))
	switch {
	case in.Item.Subject.User != want.Subject.User || in.Item.Driver != want.Driver:
	case err == nil && (d.life == 0 || in.Now.Before(expiry)):
		step.Condition = d.tell(metav1.ConditionTrue, "Issued")
		if d.life > 0 {
			step.At = expiry
		}
	case d.hold:
	case len(in.State["nonce"]) == 0:
		step.State = map[string][]byte{"nonce": []byte("n")}
	default:
		d.issued++
		step.Credential = &registration.Credential{User: &clientcmdapi.AuthInfo{TokenFile: d.name}, Files: map[string][]byte{
			d.name:   fmt.Appendf(nil, "token-%s-%s-%d", d.name, in.Addon, d.issued),
			"expiry": []byte(in.Now.Add(d.life).Format(time.RFC3339))}}
	}
	return step, nil
}

func (d *addOnDriver) tell(status metav1.ConditionStatus, reason string) *metav1.Condition {
	return &metav1.Condition{Type: d.condition, Status: status, Reason: reason, Message: "by " + d.name}
}

const addOnNamespace = "open-cluster-management-agent-addon"

// addOnEnvironment is a joined cluster and a hub with add-ons, both from
// memory.
type addOnEnvironment struct {
	*agentEnvironment
	driver, signer *addOnDriver
	addOns         *agent.AddOns
	addOnOptions   agent.AddOnOptions
	registry       *prometheus.Registry
	mapper         *servedMapper
	localErr       func(verb string, o client.Object) error
}

// servedMapper is the discovery of a hub, which may change.
type servedMapper struct{ meta.RESTMapper }

func (m *servedMapper) serve(versions ...schema.GroupVersion) {
	d := meta.NewDefaultRESTMapper(nil)
	d.Add(ocm.GroupVersion.WithKind("ManagedCluster"), meta.RESTScopeRoot)
	d.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	for _, v := range versions {
		d.Add(v.WithKind("ManagedClusterAddOn"), meta.RESTScopeNamespace)
	}
	m.RESTMapper = d
}

func newAddOnEnvironment(t *testing.T, versions ...schema.GroupVersion) *addOnEnvironment {
	w := &addOnEnvironment{agentEnvironment: newAgentEnvironment(t), registry: prometheus.NewRegistry(),
		mapper: &servedMapper{},
		driver: &addOnDriver{name: "token", condition: "AddonTokenRefreshed"},
		signer: &addOnDriver{name: "csr", condition: ocm.ConditionCertificateRotated}}
	if len(versions) == 0 {
		versions = []schema.GroupVersion{addon.GroupVersion}
	}
	w.mapper.serve(versions...)
	w.hub = fake.NewClientBuilder().WithScheme(regtest.Scheme(t)).WithRESTMapper(w.mapper).
		WithStatusSubresource(&ocm.ManagedCluster{}, &addon.ManagedClusterAddOn{},
			&v1alpha1.ManagedClusterAddOn{}).WithObjects(hubLease()).Build()
	w.local = w.failing(w.local)
	w.opts.Local, w.opts.Registerer = w.local, w.registry
	w.agentEnvironment.restart()
	w.join()
	w.addOnOptions = agent.AddOnOptions{KubeClient: w.driver, CustomSigner: w.signer}
	w.restart()
	w.writes = nil
	return w
}

// failing lets the test fail requests to the managed cluster.
func (w *addOnEnvironment) failing(c client.Client) client.Client {
	watching, ok := c.(client.WithWatch)
	if !ok {
		w.t.Fatalf("%T does not watch", c)
	}
	check := func(verb string, o client.Object) error {
		if w.localErr == nil {
			return nil
		}
		return w.localErr(verb, o)
	}
	return interceptor.NewClient(watching, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			o.SetNamespace(key.Namespace)
			return errors.Join(check("get", o), c.Get(ctx, key, o, opts...))
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := check("create", o); err != nil {
				return err
			}
			return c.Create(ctx, o, opts...)
		},
	})
}

// restart makes new AddOns of the same agent.
func (w *addOnEnvironment) restart() {
	w.t.Helper()
	w.registry = prometheus.NewRegistry()
	w.opts.Registerer = w.registry
	w.agentEnvironment.restart()
	w.agentEnvironment.mustReconcile()
	w.addOnOptions.Agent = w.agent
	addOns, err := agent.NewAddOns(w.addOnOptions)
	regtest.Must(w.t, err)
	w.addOns = addOns
}

// create puts an add-on with the items onto the hub.
func (w *addOnEnvironment) create(name string, items ...ocm.Registration) {
	w.t.Helper()
	api, err := addon.Discover(w.mapper)
	regtest.Must(w.t, err)
	o := api.New()
	o.SetNamespace("cluster1")
	o.SetName(name)
	regtest.Must(w.t, w.hub.Create(w.t.Context(), o))
	w.change(name, func(s *addon.Status) { s.Items = items })
}

// change writes the status as controllers of the hub do.
func (w *addOnEnvironment) change(name string, change func(*addon.Status)) {
	w.t.Helper()
	regtest.Must(w.t,
		addon.PatchStatus(w.t.Context(), w.hub, w.get(name), func(s *addon.Status) bool { change(s); return true }))
}

func (w *addOnEnvironment) get(name string) client.Object {
	w.t.Helper()
	api, err := addon.Discover(w.mapper)
	regtest.Must(w.t, err)
	o := api.New()
	regtest.Must(w.t, w.hub.Get(w.t.Context(), client.ObjectKey{Namespace: "cluster1", Name: name}, o))
	return o
}

func (w *addOnEnvironment) status(name string) addon.Status {
	w.t.Helper()
	return addon.StatusOf(w.get(name))
}

// namespace sets status.namespace of a v1beta1 add-on.
func (w *addOnEnvironment) namespace(name, namespace string) {
	w.t.Helper()
	o, ok := w.get(name).(*addon.ManagedClusterAddOn)
	if !ok {
		w.t.Fatal("not v1beta1")
	}
	o.Status.Namespace = namespace
	regtest.Must(w.t, w.hub.Status().Update(w.t.Context(), o))
}

func (w *addOnEnvironment) reconcile(name string) (time.Duration, error) {
	w.t.Helper()
	result, err := w.addOns.Reconcile(w.t.Context(),
		reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "cluster1", Name: name}})
	return result.RequeueAfter, err
}

// mustReconcile is a reconcile that has to succeed. The first one of an add-on
// declares, the second one registers.
func (w *addOnEnvironment) mustReconcile(name string) time.Duration {
	w.t.Helper()
	after, err := w.reconcile(name)
	regtest.Must(w.t, err)
	return after
}

func (w *addOnEnvironment) register(name string, items ...ocm.Registration) {
	w.t.Helper()
	w.create(name, items...)
	w.mustReconcile(name)
	w.mustReconcile(name)
}

// secretIn returns an empty Secret if there is none.
func (w *addOnEnvironment) secretIn(namespace, name string) *corev1.Secret {
	w.t.Helper()
	secret := &corev1.Secret{}
	if err := w.local.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: name},
		secret); client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	} else if err != nil {
		return &corev1.Secret{}
	}
	return secret
}

func (w *addOnEnvironment) keys(name string) []string {
	w.t.Helper()
	return slices.Sorted(maps.Keys(w.secretIn(addOnNamespace, name).Data))
}

func (w *addOnEnvironment) condition(name, conditionType string) metav1.Condition {
	w.t.Helper()
	if c := meta.FindStatusCondition(w.status(name).Conditions, conditionType); c != nil {
		return *c
	}
	return metav1.Condition{}
}

func (w *addOnEnvironment) put(secret *corev1.Secret) {
	w.t.Helper()
	regtest.Must(w.t, w.local.Create(w.t.Context(), secret.DeepCopy()))
}

// failIn moves the add-on to a namespace where a verb fails.
func (w *addOnEnvironment) failIn(namespace, verb string, err error) {
	w.namespace("a", namespace)
	w.localErr = func(v string, o client.Object) error {
		if v == verb && o.GetNamespace() == namespace {
			return err
		}
		return nil
	}
}

func (d *eagerDriver) Name() string { return "csr" }

func (d *eagerDriver) Next(_ context.Context, in registration.Input) (registration.Step, error) {
	d.seen = append(d.seen, in.Item.Driver)
	step := registration.Step{State: map[string][]byte{"declared": []byte("yes")}}
	if len(in.State["declared"]) == 0 {
		step.Declare = &ocm.Registration{Driver: "csr", Subject: ocm.Subject{User: "u"}}
	}
	return step, nil
}
