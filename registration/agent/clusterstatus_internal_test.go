package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/registration/ocm"
)

func resourcesOf(quantities ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(quantities); i += 2 {
		list[corev1.ResourceName(quantities[i])] = resource.MustParse(quantities[i+1])
	}
	return list
}

func nodeWith(unschedulable bool, capacity, allocatable corev1.ResourceList) corev1.Node {
	return corev1.Node{Spec: corev1.NodeSpec{Unschedulable: unschedulable},
		Status: corev1.NodeStatus{Capacity: capacity, Allocatable: allocatable}}
}

func TestResourcesOfNodesAreAddedUp(t *testing.T) {
	big := nodeWith(false, resourcesOf("cpu", "2", "memory", "2Gi"), resourcesOf("cpu", "1900m", "memory", "1Gi"))
	cordoned := nodeWith(true, resourcesOf("cpu", "500m", "example.com/gpu", "1"), resourcesOf("cpu", "500m"))
	for name, row := range map[string]struct {
		nodes                 []corev1.Node
		capacity, allocatable ocm.ResourceList
	}{
		"none": {nil, ocm.ResourceList{}, ocm.ResourceList{}},
		"one": {[]corev1.Node{big}, ocm.ResourceList{"cpu": "2", "memory": "2Gi"},
			ocm.ResourceList{"cpu": "1900m", "memory": "1Gi"}},
		"one that takes no pods": {[]corev1.Node{cordoned}, ocm.ResourceList{"cpu": "500m", "example.com/gpu": "1"},
			ocm.ResourceList{}},
		"several": {[]corev1.Node{big, cordoned, big}, ocm.ResourceList{"cpu": "4500m", "memory": "4Gi", "example.com/gpu": "1"},
			ocm.ResourceList{"cpu": "3800m", "memory": "2Gi"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &clusterReport{}
			r.addNodes(row.nodes)
			capacity, _ := boundResources(r.capacity, nil)
			allocatable, _ := boundResources(r.allocatable, nil)
			if !maps.Equal(capacity, row.capacity) || !maps.Equal(allocatable, row.allocatable) {
				t.Errorf("capacity %v, allocatable %v, want %v, %v", capacity, allocatable, row.capacity, row.allocatable)
			}
		})
	}
	if cpu := big.Status.Capacity[corev1.ResourceCPU]; cpu.String() != "2" {
		t.Errorf("the node in the cache now has %s", cpu.String())
	}
}

func TestResourcesAreBounded(t *testing.T) {
	many := func(n int, name string) corev1.ResourceList {
		list := resourcesOf("cpu", "1", "memory", "1Gi")
		for i := range n {
			list[corev1.ResourceName(fmt.Sprintf("%s%03d", name, i))] = resource.MustParse("1")
		}
		return list
	}
	long := "example.com/" + strings.Repeat("a", 97) // 112 characters with a number
	for name, row := range map[string]struct {
		nodes         corev1.ResourceList
		reported      ocm.ResourceList
		kept, omitted int
		also          string // is kept
	}{
		"few":            {many(3, "a.example/x"), nil, 5, 0, "a.example/x002"},
		"too many":       {many(100, "a.example/x"), nil, maxResources, 102 - maxResources, "cpu"},
		"long names":     {many(maxResources-2, long), nil, 38, 26, "memory"},
		"another report": {many(1, "a.example/x"), ocm.ResourceList{"licences": "5", "cpu": "99"}, 4, 0, "licences"},
		"no room for it": {many(maxResources-2, "a.example/x"), ocm.ResourceList{"licences": "5"}, maxResources, 0, "cpu"},
	} {
		t.Run(name, func(t *testing.T) {
			kept, omitted := boundResources(row.nodes, row.reported)
			if len(kept) != row.kept || omitted != row.omitted || kept[row.also] == "" || kept["cpu"] != "1" {
				t.Errorf("%d resources and %d omitted, want %d and %d; cpu %q, %s %q", len(kept), omitted, row.kept, row.omitted,
					kept["cpu"], row.also, kept[row.also])
			}
		})
	}
}

func claimNamed(name, value string) unstructured.Unstructured {
	c := unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"value": value}}}
	c.SetName(name)
	return c
}

func TestClaimsThatAreReported(t *testing.T) {
	custom := func(n int) (claims []unstructured.Unstructured) {
		for i := range n {
			claims = append(claims, claimNamed(fmt.Sprintf("c%02d", n-1-i), "v"))
		}
		return claims
	}
	reserved := []unstructured.Unstructured{claimNamed("product.open-cluster-management.io", "EKS"),
		claimNamed("id.k8s.io", "1")}
	for name, row := range map[string]struct {
		claims  []unstructured.Unstructured
		want    string // names, the last one if there are more than two
		missing string
	}{
		"none":                   {nil, "", ""},
		"reserved claims first":  {append(custom(1), reserved...), "id.k8s.io product.open-cluster-management.io c00", ""},
		"20 custom claims":       {custom(20), "20 to c19", ""},
		"21 custom claims":       {custom(21), "20 to c19", "1 ClusterClaims are not reported"},
		"20 and reserved claims": {append(custom(20), reserved...), "22 to c19", ""},
		"an empty value":         {[]unstructured.Unstructured{claimNamed("a", ""), claimNamed("b", "v")}, "b", "1 ClusterClaims"},
		"a value without a text": {[]unstructured.Unstructured{{Object: map[string]any{"spec": map[string]any{"value": int64(1)}}},
			claimNamed("b", "v")}, "b", "1 ClusterClaims"},
		"a value of 1 KiB": {[]unstructured.Unstructured{claimNamed("a", strings.Repeat("x", 1024))}, "a", ""},
		"a value that the hub counts longer": {[]unstructured.Unstructured{claimNamed("a", strings.Repeat("\x01", 300))}, "",
			"1 ClusterClaims"},
		"a longer value": {[]unstructured.Unstructured{claimNamed("a", strings.Repeat("x", 1025)), claimNamed("b", "v")}, "b",
			"with values of 1 to 1024 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			r, c := &clusterReport{}, &claims{}
			slices.SortFunc(row.claims, func(a, b unstructured.Unstructured) int {
				return cmp.Compare(a.GetName(), b.GetName())
			})
			for i := range row.claims {
				c.add(&row.claims[i])
			}
			r.addClaims(c)
			var names []string
			for _, c := range r.claims {
				names = append(names, c.Name)
			}
			got := strings.Join(names, " ")
			if len(names) > 3 {
				got = fmt.Sprintf("%d to %s", len(names), names[len(names)-1])
			}
			if got != row.want || r.claims == nil || !strings.Contains(r.missing.Message, row.missing) ||
				(r.missing.Reason == "") != (row.missing == "") {
				t.Errorf("claims %q and %s %q, want %q and %q", got, r.missing.Reason, r.missing.Message, row.want, row.missing)
			}
		})
	}
}

// The cache keeps what is added up, of nodes that hold much more.
func TestNodesAreStripped(t *testing.T) {
	node := nodeWith(true, resourcesOf("cpu", "1"), resourcesOf("cpu", "500m"))
	node.Name, node.ResourceVersion = "a", "1"
	want := node.DeepCopy()
	node.Labels, node.Annotations = map[string]string{"a": "b"}, map[string]string{"a": "b"}
	node.Spec.PodCIDR, node.Spec.ProviderID = "10.0.0.0/24", "aws:///a/b"
	node.Status.Images = slices.Repeat([]corev1.ContainerImage{{Names: []string{"image"}}}, 50)
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}}
	kept, err := stripNode(&node)
	if got, ok := kept.(*corev1.Node); err != nil || !ok || got.String() != want.String() {
		t.Errorf("it keeps %+v, %v", kept, err)
	}
	tombstone := toolscache.DeletedFinalStateUnknown{Key: "a"}
	if kept, err := stripNode(tombstone); err != nil || kept != any(tombstone) {
		t.Errorf("of a missed deletion it keeps %+v, %v", kept, err)
	}
}

// nodeReader answers with one node, or an error.
type nodeReader struct {
	client.Client
	err error
}

func (r nodeReader) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if nodes, ok := list.(*corev1.NodeList); ok && r.err == nil {
		nodes.Items = []corev1.Node{{}}
	}
	return r.err
}

func TestNodesAreKnown(t *testing.T) {
	unsynced := apierrors.NewTimeoutError("failed waiting for *v1.Node Informer to sync", 0)
	forbidden := apierrors.NewForbidden(corev1.Resource("nodes"), "", errors.New("no RBAC"))
	other := errors.New("another error")
	for name, row := range map[string]struct {
		direct, cached error
		nodes          bool
		want           error
	}{
		"a cache with a list":   {nil, nil, true, nil},
		"no list yet":           {nil, unsynced, false, nil},
		"no list for no rights": {forbidden, unsynced, false, forbidden},
		"rights taken away":     {forbidden, nil, false, forbidden},
		"a cache that fails":    {nil, other, true, other},
	} {
		t.Run(name, func(t *testing.T) {
			a := &Agent{opts: Options{Local: nodeReader{err: row.direct}}, nodes: nodeReader{err: row.cached}}
			nodes, err := a.listNodes(t.Context())
			if (nodes != nil) != row.nodes || !errors.Is(err, row.want) || (err == nil) != (row.want == nil) {
				t.Errorf("nodes %v, %v, want %t, %v", nodes, err, row.nodes, row.want)
			}
		})
	}
}
