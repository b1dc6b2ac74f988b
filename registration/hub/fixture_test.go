package hub_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
)

// hubDriver remembers what it has granted. The value of its annotation is the
// claim; "malformed" is none.
type hubDriver struct {
	name, annotation string

	mu       sync.Mutex
	granted  map[string]string // claim by cluster
	calls    []string
	approves bool
	next     time.Duration
	fail     map[string]error // by operation
	onGrant  func(cluster, claim string)
	onRevoke func(cluster, claim string)
	hangFor  string // a cluster whose Grant ends with its context
}

func newHubDriver(name, annotation string) *hubDriver {
	return &hubDriver{name: name, annotation: annotation, granted: map[string]string{}, fail: map[string]error{}}
}

func (d *hubDriver) Name() string { return d.name }

func (d *hubDriver) Claim(cluster *ocm.ManagedCluster) (string, bool, error) {
	claim, ok := cluster.Annotations[d.annotation]
	if claim == "malformed" {
		return "", false, fmt.Errorf("the annotation %q is malformed", d.annotation)
	}
	return claim, ok, nil
}

func (d *hubDriver) Approves(_ context.Context, cluster *ocm.ManagedCluster, claim string) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, "approve "+cluster.Name+" "+claim)
	return d.approves, d.fail["approve"]
}

func (d *hubDriver) Grant(ctx context.Context, cluster, claim string) (time.Duration, error) {
	if cluster == d.hangFor {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, "grant "+cluster+" "+claim)
	if d.onGrant != nil {
		d.onGrant(cluster, claim)
	}
	if err := d.fail["grant"]; err != nil {
		return d.next, err
	}
	d.granted[cluster] = claim
	return d.next, nil
}

func (d *hubDriver) Revoke(_ context.Context, cluster, claim string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, "revoke "+cluster+" "+claim)
	if d.onRevoke != nil {
		d.onRevoke(cluster, claim)
	}
	if err := d.fail["revoke"]; err != nil {
		return err
	}
	if d.granted[cluster] == claim {
		delete(d.granted, cluster)
	}
	return nil
}

func (d *hubDriver) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	calls := d.calls
	d.calls = nil
	return calls
}

// hubTest is a hub on an API server from memory.
type hubTest struct {
	t      *testing.T
	client client.WithWatch // an administrator's, not counted
	hub    *hub.Hub
	driver *hubDriver
	other  *hubDriver
	now    time.Time

	mu      sync.Mutex
	writes  []string
	failAt  int                     // the number of the write that fails; 0 is none
	applied bool                    // it fails after it was applied
	refuse  func(what string) error // answers a write, if it returns an error
	events  []string
}

const (
	driverAnnotation = "example.com/id"
	otherAnnotation  = "example.com/other"
)

func newHubTest(t *testing.T, objects ...client.Object) *hubTest {
	t.Helper()
	h := &hubTest{t: t, driver: newHubDriver("one", driverAnnotation), other: newHubDriver("two", otherAnnotation),
		now: time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)}
	h.client = fake.NewClientBuilder().WithScheme(regtest.Scheme(t)).WithStatusSubresource(
		&ocm.ManagedCluster{}).WithObjects(objects...).Build()
	h.restart()
	return h
}

// restart replaces the hub by one that remembers nothing.
func (h *hubTest) restart(change ...func(*hub.Options)) {
	h.t.Helper()
	options := hub.Options{Client: h.counting(), Drivers: []registration.HubDriver{h.driver, h.other}, Default: "one",
		Now: func() time.Time { return h.now }, Recorder: h}
	for _, c := range change {
		c(&options)
	}
	hub, err := hub.New(options)
	regtest.Must(h.t, err)
	h.hub = hub
}

var errCrash = errors.New("crash")

// write counts a write, and fails the chosen one before or after it was
// applied.
func (h *hubTest) write(what string, object client.Object, apply func() error) error {
	h.mu.Lock()
	h.writes = append(h.writes, fmt.Sprintf("%s %T %s", what, object, object.GetName()))
	crash := len(h.writes) == h.failAt
	h.mu.Unlock()
	if h.refuse != nil {
		if err := h.refuse(what + fmt.Sprintf(" %T ", object)); err != nil {
			return err
		}
	}
	if crash && !h.applied {
		return errCrash
	}
	if err := apply(); err != nil || !crash {
		return err
	}
	return errCrash
}

func (h *hubTest) counting() client.Client {
	return interceptor.NewClient(h.client, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return h.write("create", o, func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return h.write("update", o, func() error { return c.Update(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return h.write("delete", o, func() error { return c.Delete(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
			opts ...client.PatchOption) error {
			return h.write("patch", o, func() error { return c.Patch(ctx, o, p, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			return h.write("patch "+sub, o, func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	})
}

// Eventf implements events.EventRecorder.
func (h *hubTest) Eventf(_, _ runtime.Object, eventType, reason, _, note string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, eventType+" "+reason)
	if text := fmt.Sprintf(note, args...); len(text) > 1024 {
		h.t.Errorf("an Event of %d bytes: the API server refuses it", len(text))
	}
}

func (h *hubTest) takeWrites() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	writes := h.writes
	h.writes = nil
	return writes
}

func (h *hubTest) hasEvent(want string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.events, want)
}

func (h *hubTest) reconcile(name string) (reconcile.Result, error) {
	return h.hub.Reconcile(h.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
}

// mustReconcile runs one reconcile, and another one that must write nothing.
func (h *hubTest) mustReconcile(name string) reconcile.Result {
	h.t.Helper()
	result, err := h.reconcile(name)
	regtest.Must(h.t, err)
	before := len(h.takeWrites())
	if _, err := h.reconcile(name); err != nil {
		h.t.Fatal(err)
	}
	if again := h.takeWrites(); len(again) > 0 {
		h.t.Errorf("a second reconcile writes again, after %d writes: %q", before, again)
	}
	return result
}

func (h *hubTest) cluster(name string) *ocm.ManagedCluster {
	h.t.Helper()
	cluster := &ocm.ManagedCluster{}
	regtest.Must(h.t, h.client.Get(h.t.Context(), client.ObjectKey{Name: name}, cluster))
	return cluster
}

func (h *hubTest) edit(name string, change func(*ocm.ManagedCluster)) {
	h.t.Helper()
	cluster := h.cluster(name)
	status := cluster.Status.DeepCopy()
	change(cluster)
	changed := cluster.Status.DeepCopy()
	cluster.Status = *status
	cluster.Generation++
	regtest.Must(h.t, h.client.Update(h.t.Context(), cluster))
	cluster.Status = *changed
	regtest.Must(h.t, h.client.Status().Update(h.t.Context(), cluster))
}

func accept(c *ocm.ManagedCluster) { c.Spec.HubAcceptsClient = true }
func deny(c *ocm.ManagedCluster)   { c.Spec.HubAcceptsClient = false }

// condition returns status and reason of a condition, such as
// "True/HubClusterAdminAccepted".
func (h *hubTest) condition(name, kind string) string {
	h.t.Helper()
	c := meta.FindStatusCondition(h.cluster(name).Status.Conditions, kind)
	if c == nil {
		return ""
	}
	return string(c.Status) + "/" + c.Reason
}

func (h *hubTest) wantAccepted(name, want string) {
	h.t.Helper()
	if got := h.condition(name, ocm.ConditionHubAccepted); got != want {
		h.t.Errorf("condition HubAcceptedManagedCluster of %q is %q, want %q", name, got, want)
	}
}

// exists reports whether the object with the name and namespace of o is there,
// and reads it.
func (h *hubTest) exists(o client.Object) bool {
	h.t.Helper()
	err := h.client.Get(h.t.Context(), client.ObjectKeyFromObject(o), o)
	if client.IgnoreNotFound(err) != nil {
		h.t.Fatal(err)
	}
	return err == nil
}

func roleFor(cluster string) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: registration.ClusterRoleName(cluster)}}
}

func bindingsFor(cluster string) []client.Object {
	name := registration.ClusterRoleName(cluster)
	return []client.Object{
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name + ":registration", Namespace: cluster}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name + ":work", Namespace: cluster}},
	}
}

// isGranting reports whether an object gives or records access. A ClusterRole
// that only publishes the claim of a pending cluster does neither.
func isGranting(o client.Object) bool {
	role, ok := o.(*rbacv1.ClusterRole)
	return !ok || len(role.Rules) > 0 || role.Annotations[ocm.PendingSourceAnnotation] == "" ||
		role.Annotations[ocm.AuthTypeAnnotation]+role.Annotations[ocm.AgentAnnotation] != ""
}

// rbac lists which of a cluster's role and bindings are there.
func (h *hubTest) rbac(cluster string) (there []string) {
	h.t.Helper()
	for _, o := range append([]client.Object{roleFor(cluster)}, bindingsFor(cluster)...) {
		if h.exists(o) && isGranting(o) {
			there = append(there, fmt.Sprintf("%T %s", o, o.GetName()))
		}
	}
	return there
}

// wantGranted checks all that an accepted cluster has.
func (h *hubTest) wantGranted(cluster, driver, claim string) {
	h.t.Helper()
	role := roleFor(cluster)
	if !h.exists(role) {
		h.t.Fatalf("cluster %q has no ClusterRole", cluster)
	}
	want := map[string]string{ocm.AuthTypeAnnotation: driver, ocm.ClaimAnnotation: claim}
	if !maps.Equal(role.Annotations, want) {
		h.t.Errorf("the record of %q is %v, want %v", cluster, role.Annotations, want)
	}
	d := h.driver
	if driver == h.other.name {
		d = h.other
	}
	if got, ok := d.granted[cluster]; !ok || got != claim {
		h.t.Errorf("the driver has granted %q %q (%v), want %q", cluster, got, ok, claim)
	}
	if got := h.rbac(cluster); len(got) != 4 {
		h.t.Errorf("cluster %q has %q, want its role and three bindings", cluster, got)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster}}
	if !h.exists(namespace) || namespace.Labels[ocm.ClusterNameLabel] != cluster {
		h.t.Errorf("the namespace of %q is missing, or has no label: %v", cluster, namespace.Labels)
	}
	if !slices.Contains(h.cluster(cluster).Finalizers, ocm.Finalizer) {
		h.t.Errorf("cluster %q has no finalizer", cluster)
	}
}

// wantRevoked checks that nothing is left but the namespace.
func (h *hubTest) wantRevoked(cluster string) {
	h.t.Helper()
	if got := h.rbac(cluster); len(got) != 0 {
		h.t.Errorf("cluster %q still has %q", cluster, got)
	}
	if claim, ok := h.driver.granted[cluster]; ok {
		h.t.Errorf("cluster %q still has a grant for %q", cluster, claim)
	}
}

func managedCluster(name string, change ...func(*ocm.ManagedCluster)) *ocm.ManagedCluster {
	c := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1}}
	for _, f := range change {
		f(c)
	}
	return c
}

// annotated gives the cluster an annotation.
func annotated(key, value string) func(*ocm.ManagedCluster) {
	return func(c *ocm.ManagedCluster) { metav1.SetMetaDataAnnotation(&c.ObjectMeta, key, value) }
}
