package hub_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/ocm"
)

// megabyte is most of what etcd takes in one object.
const megabyte = 1 << 20

// The limits hold for an agent or a bootstrap user, whatever labels, names and
// fields it writes.
func TestSizesGoByWhoWrites(t *testing.T) {
	k := startReleased(t)
	kubetest.Apply(t, k.Admin,
		strings.Replace(regtest.WorkCRD, "storage: true,", "storage: true, subresources: {status: {}},", 1))
	kubetest.Eventually(t, "the API server serves ManifestWorks", func() bool {
		k.Admin = regtest.NewClient(t, k.Hub.Config())
		return apierrors.IsNotFound(k.Admin.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: "a"}, newWork("a")))
	})
	k.run(t, k.controllerConfig(), 4, newHubDriver("one", driverAnnotation))
	agent := k.accepted(t, "writer")
	create := authorizationv1.ResourceAttributes{Verb: "create", Group: csrGroup, Resource: "certificatesigningrequests"}
	k.awaitAgent(t, "writer", create)
	k.awaitAgent(t, "writer",
		authorizationv1.ResourceAttributes{Verb: "patch", Group: workGroup, Resource: "manifestworks",
			Subresource: "status", Namespace: "writer"})
	eks := k.As("eks", "open-cluster-management:writer")
	k.Step("requests without a label", func(t *testing.T) { k.testUnlabelled(t, agent, eks) })
	k.Step("Leases", func(t *testing.T) { k.testLeaseSizes(t, agent) })
	k.Step("Events", func(*testing.T) { k.testEventSizes(agent, eks) })
	k.Step("ManifestWorks", func(t *testing.T) { k.testWorkSizes(t, agent) })
	k.Step("add-ons with tokens", k.testAddOnSizes)
}

// An agent asks for tokens of the ServiceAccounts that the hub makes for its
// add-ons.
func (k *hubKube) testAddOnSizes(*testing.T) {
	for user, refused := range map[string]bool{
		"system:serviceaccount:writer:metrics-agent":  true,
		"system:serviceaccount:writer:default":        false, // not made for an add-on
		"system:serviceaccount:default:metrics-agent": false, // in its namespace, which is no cluster's
	} {
		k.Step(user, func(t *testing.T) {
			namespace, name, _ := strings.Cut(strings.TrimPrefix(user, "system:serviceaccount:"), ":")
			k.allow(t, namespace+"-"+name, rbacv1.Subject{Kind: rbacv1.UserKind, Name: user}, rbacv1.PolicyRule{
				APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create"}})
			writer := k.As(user)
			for size, refused := range map[int]bool{0: false, megabyte / 2: refused} {
				err := writer.Create(t.Context(), &corev1.Event{
					ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: "a"},
					InvolvedObject: corev1.ObjectReference{Namespace: namespace, Kind: "Pod", Name: "a"},
					Message:        strings.Repeat("x", size), Reason: "A", Type: corev1.EventTypeWarning,
				}, client.DryRunAll)
				if refused {
					wantTooLarge(t, err, "8192 bytes")
				} else if err != nil {
					t.Errorf("%d bytes: %.300v", size, err)
				}
			}
		})
	}
}

func (k *hubKube) testUnlabelled(t *testing.T, agent, eks client.Client) {
	custom := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "custom"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "custom"},
			{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "customs"}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: ocm.BootstrapRole}}
	regtest.Must(t, k.Admin.Create(t.Context(), custom))
	for _, s := range []authorizationv1.SubjectAccessReviewSpec{{User: "custom"},
		{User: "member", Groups: []string{"customs"}}} {
		s.ResourceAttributes = &authorizationv1.ResourceAttributes{Verb: "create", Group: csrGroup,
			Resource: "certificatesigningrequests"}
		k.Hub.Await(t, s)
	}
	k.allow(t, "requester", rbacv1.Subject{Kind: rbacv1.UserKind, Name: "requester"}, rbacv1.PolicyRule{
		APIGroups: []string{csrGroup}, Resources: []string{"certificatesigningrequests"}, Verbs: []string{"create"}})
	addOn := k.As("requester", "system:open-cluster-management:cluster:writer:addon:a")
	unlabel := func(r *certificatesv1.CertificateSigningRequest) { r.Labels = nil }
	large := newRequest(t, megabyte/2, unlabel)
	for _, row := range []struct {
		name    string
		user    client.Client
		refused bool
	}{
		{"a bootstrap user", k.bootstrap(t), true},
		{"an agent", agent, true},
		{"an agent of EKS", eks, true},
		{"the bootstrap ServiceAccount", k.As(ocm.BootstrapUser), true},
		{"the user of --bootstrap-user", k.As("custom"), true},
		{"a user in the group of --bootstrap-group", k.As("member", "customs"), true},
		{"an add-on that may create requests", addOn, true},
		{"another user", k.As("requester"), false},
		{"an administrator", k.Admin, false},
	} {
		k.Step(row.name, func(t *testing.T) {
			wantRefused(t, row.user.Create(t.Context(), large.DeepCopy(), client.DryRunAll), row.refused)
			if err := row.user.Create(t.Context(), newRequest(t, 0, unlabel), client.DryRunAll); err != nil {
				t.Errorf("a small request: %.300v", err)
			}
		})
	}
	k.Step("another user, with the label by which the hub reads it", func(t *testing.T) {
		wantRefused(t, k.As("requester").Create(t.Context(), newRequest(t, megabyte/2), client.DryRunAll), true)
	})
}

func (k *hubKube) testLeaseSizes(t *testing.T, agent client.Client) {
	lease := &coordinationv1.Lease{}
	kubetest.Eventually(t, "the hub has created the Lease", func() bool {
		return agent.Get(t.Context(), client.ObjectKey{Namespace: "writer", Name: ocm.LeaseName}, lease) == nil
	})
	hold := func(n int) func(*coordinationv1.Lease) {
		return func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new(strings.Repeat("x", n)) }
	}
	update := func(c client.Client, change func(*coordinationv1.Lease)) error {
		l := lease.DeepCopy()
		change(l)
		return c.Update(t.Context(), l, client.DryRunAll)
	}
	wantTooLarge(t, update(agent, hold(megabyte)), "4096 bytes")
	wantTooLarge(t, update(agent, hold(4096)), "4096 bytes")
	if err := update(agent, hold(253)); err != nil {
		t.Errorf("a renewal: %.300v", err)
	}
	if err := update(k.Admin, hold(megabyte)); err != nil {
		t.Errorf("an administrator: %.300v", err)
	}
	another := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "writer", Name: "another"}}
	err := agent.Create(t.Context(), another)
	if !apierrors.IsForbidden(err) || strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
		t.Errorf("an agent creates a Lease: %.300v", err)
	}
}

func (k *hubKube) testEventSizes(agent, eks client.Client) {
	regarding := func(n int) corev1.ObjectReference {
		name := strings.Repeat("a", 253)
		return corev1.ObjectReference{APIVersion: "work.open-cluster-management.io/v1", Kind: "ManifestWork",
			Namespace: "writer",
			Name:      name, UID: types.UID(name[:36]), FieldPath: strings.Repeat("x", n)}
	}
	now := metav1.NowMicro()
	core := func(n int) client.Object {
		return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "writer", Name: strings.Repeat("a", 230) + ".17f"},
			InvolvedObject: regarding(0), Message: strings.Repeat("x", n), Reason: strings.Repeat("R", 128),
			Type: corev1.EventTypeWarning, Source: corev1.EventSource{Component: "work-agent"},
			FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(), Count: 1}
	}
	newer := func(n int) client.Object {
		related := regarding(0)
		return &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "writer", Name: strings.Repeat("b", 230) + ".17f"},
			Regarding: regarding(n), Related: &related, EventTime: now, Note: strings.Repeat("x", 1024),
			Reason: strings.Repeat("R", 128), Action: strings.Repeat("A", 128), Type: corev1.EventTypeWarning,
			ReportingController: "registration-agent", ReportingInstance: strings.Repeat("i", 128),
			Series: &eventsv1.EventSeries{Count: 2, LastObservedTime: now}}
	}
	for name, event := range map[string]func(int) client.Object{"core": core, "events.k8s.io": newer} {
		k.Step(name, func(t *testing.T) {
			for _, c := range []client.Client{agent, eks} {
				wantTooLarge(t, c.Create(t.Context(), event(megabyte)), "8192 bytes")
				if err := c.Create(t.Context(), event(1024), client.DryRunAll); err != nil {
					t.Errorf("the largest Event of a recorder: %.300v", err)
				}
			}
			small := event(0)
			regtest.Must(t, agent.Create(t.Context(), small))
			grow := fmt.Appendf(nil, `{"metadata":{"annotations":{"a":%q}}}`, strings.Repeat("x", 8192))
			wantTooLarge(t, agent.Patch(t.Context(), small, client.RawPatch(types.MergePatchType, grow)), "8192 bytes")
			large := event(megabyte)
			large.SetName("large")
			if err := k.Admin.Create(t.Context(), large, client.DryRunAll); err != nil &&
				!strings.Contains(err.Error(), "note") {
				t.Errorf("an administrator: %.300v", err)
			}
		})
	}
	k.Step("a ResourceQuota counts none", func(t *testing.T) {
		counted := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "writer", Name: "counted"}}
		none := resource.MustParse("0")
		counts := corev1.ResourceList{"count/configmaps": none, "count/events": none, "count/events.events.k8s.io": none}
		quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "writer", Name: "none"},
			Spec: corev1.ResourceQuotaSpec{Hard: counts}}
		regtest.Must(t, k.Admin.Create(t.Context(), quota))
		quota.Status = corev1.ResourceQuotaStatus{Hard: counts, Used: counts} // as the controller manager does
		regtest.Must(t, k.Admin.Status().Update(t.Context(), quota))
		kubetest.Eventually(t, "the quota is in force", func() bool {
			return apierrors.IsForbidden(k.Admin.Create(t.Context(), counted.DeepCopy(), client.DryRunAll))
		})
		for i, event := range []client.Object{core(1), newer(1)} {
			event.SetName(fmt.Sprint("counted", i))
			if err := agent.Create(t.Context(), event); err != nil {
				t.Errorf("docs/registration-operate.md says that no quota counts Events: %v", err)
			}
		}
	})
}

// The webhook of Open Cluster Management allows 500 KiB of manifests in a
// ManifestWork.
func (k *hubKube) testWorkSizes(t *testing.T, agent client.Client) {
	const manifests = 500
	work := newWork("writer")
	var all []any
	for i := range manifests {
		all = append(all, map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"name": fmt.Sprint("a", i)},
			"data":     map[string]any{"a": strings.Repeat("x", 930)}})
	}
	work.Object["spec"] = map[string]any{"workload": map[string]any{"manifests": all}}
	if size, err := json.Marshal(work); err != nil || len(size) < 490<<10 {
		t.Fatalf("%d bytes, %v", len(size), err)
	}
	regtest.Must(t, k.Admin.Create(t.Context(), work))
	status := func(n, message int) func(int) any {
		return func(int) any {
			var all []any
			for i := range n {
				of := map[string]any{"ordinal": int64(i), "group": "", "version": "v1", "kind": "ConfigMap",
					"resource": "configmaps",
					"name":     fmt.Sprint("a", i), "namespace": "a"}
				all = append(all, map[string]any{"resourceMeta": of,
					"conditions": []any{condition(0, strings.Repeat("x", message)), condition(1, strings.Repeat("x", message))}})
			}
			return map[string]any{"manifests": all}
		}
	}
	large := func(int) any { return strings.Repeat("x", megabyte) }
	for _, row := range []struct {
		name    string
		field   field
		refused bool
	}{
		{"a finalizer", field{"", "metadata.finalizers", func(int) any { return []any{regtest.WorkCleanup} }}, false},
		{"the status of all manifests", field{"", "status.resourceStatus", status(manifests, 100)}, false},
		{"a status of 1 MB", field{"", "status.resourceStatus", status(manifests, 1000)}, true},
		{"a status of 1 MB in one text", field{"", "status.a", large}, true},
		{"a spec of 1 MB", field{"", "spec.a", large}, true},
	} {
		k.Step(row.name, func(t *testing.T) {
			if err := row.field.patch(t, agent, work, 0); row.refused {
				wantTooLarge(t, err, "1048576 bytes")
			} else if err != nil {
				t.Errorf("%.300v", err)
			}
		})
	}
}
