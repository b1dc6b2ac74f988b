package agent_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/ocm"
)

func newNode(name, cpu string) *corev1.Node {
	resources := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{Capacity: resources, Allocatable: resources}}
}

func newClaim(name, value string) *unstructured.Unstructured {
	claim := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"value": value}}}
	claim.SetAPIVersion("cluster.open-cluster-management.io/v1alpha1")
	claim.SetKind("ClusterClaim")
	claim.SetName(name)
	return claim
}

// statusEnvironment is an environment whose agent reports a node and a
// ClusterClaim.
func statusEnvironment(t *testing.T) *agentEnvironment {
	w := newAgentEnvironment(t)
	w.opts.ClusterStatus = true
	w.restart()
	private := newClaim("private", "v")
	private.SetLabels(map[string]string{"open-cluster-management.io/spoke-only": ""})
	for _, o := range []client.Object{newNode("a", "2"), newClaim("id.k8s.io", "1"), private} {
		regtest.Must(t, w.local.Create(t.Context(), o))
	}
	return w
}

// missing returns the condition that says what the report lacks.
func (w *agentEnvironment) missing() string {
	w.t.Helper()
	c := meta.FindStatusCondition(w.cluster().Status.Conditions, ocm.ConditionClusterStatus)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason + ": " + c.Message
}

func TestAgentReportsClusterStatus(t *testing.T) {
	w := statusEnvironment(t)
	w.join()
	s := w.cluster().Status
	if s.Capacity["cpu"] != "2" || s.Allocatable["cpu"] != "2" || w.missing() != "" {
		t.Errorf("capacity %v, allocatable %v, %s", s.Capacity, s.Allocatable, w.missing())
	}
	if want := []ocm.ManagedClusterClaim{{Name: "id.k8s.io", Value: "1"}}; !slices.Equal(s.ClusterClaims, want) {
		t.Errorf("claims %v, want %v", s.ClusterClaims, want)
	}
	w.writes = nil
	w.mustReconcile()
	if len(w.writes) > 0 {
		t.Errorf("without a change it writes %q", w.writes)
	}
}

func TestAgentThatDoesNotReportLeavesTheStatus(t *testing.T) {
	w := statusEnvironment(t)
	w.opts.ClusterStatus = false
	w.restart()
	w.join()
	if s := w.cluster().Status; s.Capacity != nil || s.ClusterClaims != nil || w.missing() != "" {
		t.Errorf("status %+v", s)
	}
}

// Other programs report resources that no node has.
func TestAgentKeepsTheResourcesOfOthers(t *testing.T) {
	w := statusEnvironment(t)
	w.join()
	cluster := w.cluster()
	cluster.Status.Capacity["licences"], cluster.Status.Capacity["cpu"] = "5", "99"
	cluster.Status.Allocatable["licences"] = "5"
	regtest.Must(t, w.hub.Status().Update(t.Context(), cluster))
	w.mustReconcile()
	s := w.cluster().Status
	if want := (ocm.ResourceList{"cpu": "2", "licences": "5"}); !maps.Equal(s.Capacity, want) || len(s.Allocatable) != 1 {
		t.Errorf("capacity %v, allocatable %v", s.Capacity, s.Allocatable)
	}
}

// failing makes requests fail while the map has an error for them.
func failing(c client.Client, faults map[string]error) client.Client {
	inner, _ := c.(client.WithWatch)
	return interceptor.NewClient(inner, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*corev1.NodeList); ok && faults["nodes"] != nil {
				return faults["nodes"]
			}
			if u, ok := list.(*unstructured.UnstructuredList); ok && faults[u.GetKind()] != nil {
				return faults[u.GetKind()]
			}
			return c.List(ctx, list, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch,
			opts ...client.SubResourcePatchOption) error {
			data, err := patch.Data(o)
			if err != nil || strings.Contains(string(data), `"capacity":`) && faults["patch"] != nil {
				return errors.Join(err, faults["patch"])
			}
			return c.SubResource(sub).Patch(ctx, o, patch, opts...)
		},
	})
}

// The report lacks what the agent cannot have. The agent says so, keeps what
// the hub has, and goes on with its Lease.
func TestAgentGoesOnWithoutAReport(t *testing.T) {
	absent := &meta.NoKindMatchError{}
	tooLarge := apierrors.NewRequestEntityTooLargeError("65536 bytes")
	for name, row := range map[string]struct {
		request string
		err     error
		says    string
		reports bool // the other node
	}{
		"no rights to nodes":      {"nodes", forbidden(), "False NodesUnreadable: the agent cannot list the nodes", false},
		"no rights to claims":     {"ClusterClaimList", forbidden(), "False ClusterClaimsUnreadable: ", true},
		"no ClusterClaims":        {"ClusterClaimList", absent, "", true},
		"ClusterClaims that went": {"ClusterClaimList", apierrors.NewNotFound(corev1.Resource("a"), ""), "", true},
		"a hub that refuses it":   {"patch", tooLarge, "False ClusterStatusRefused: the hub refuses capacity", false},
	} {
		t.Run(name, func(t *testing.T) {
			w, faults := statusEnvironment(t), map[string]error{}
			newHub := w.opts.NewHubClient
			w.opts.NewHubClient = func(c *rest.Config) (client.Client, error) {
				hub, err := newHub(c)
				return failing(hub, faults), err
			}
			w.opts.Local = failing(w.local, faults)
			w.restart()
			w.join()
			faults[row.request] = row.err
			regtest.Must(t, w.local.Create(t.Context(), newNode("b", "1")))
			w.now = w.now.Add(time.Minute)
			w.mustReconcile()
			if got := w.missing(); !strings.HasPrefix(got, row.says) || (got == "") != (row.says == "") {
				t.Errorf("the condition is %q, want %q", got, row.says)
			}
			want := map[bool]ocm.Quantity{true: "3", false: "2"}[row.reports]
			if s := w.cluster().Status; s.Capacity["cpu"] != want || len(s.ClusterClaims) != 1 {
				t.Errorf("cpu %q, claims %v, want cpu %q and the claim", s.Capacity["cpu"], s.ClusterClaims, want)
			}
			if !w.lease().Spec.RenewTime.Time.Equal(w.now) {
				t.Errorf("the Lease was renewed at %s", w.lease().Spec.RenewTime)
			}
			delete(faults, row.request)
			w.mustReconcile()
			if s := w.cluster().Status; w.missing() != "" || s.Capacity["cpu"] != "3" {
				t.Errorf("afterwards it reports %v, %s", s.Capacity, w.missing())
			}
		})
	}
}
