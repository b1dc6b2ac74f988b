package hub_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/ocm"
)

// idleDriver keeps the credential that is stored.
type idleDriver struct{}

func (idleDriver) Name() string { return "idle" }

func (idleDriver) Next(context.Context, registration.Input) (registration.Step, error) {
	return registration.Step{}, nil
}

// largestCluster is a managed cluster with more than an agent reports: many
// resources with long names, and ClusterClaims with long names and values.
func largestCluster(t *testing.T) client.Client {
	t.Helper()
	const kubeconfig = `{apiVersion: v1, kind: Config, current-context: a, users: [{name: a, user: {token: a}}],
contexts: [{name: a, context: {cluster: a, user: a}}], clusters: [{name: a, cluster: {server: "https://hub.example"}}]}`
	resources := corev1.ResourceList{"cpu": resource.MustParse("2")}
	for i := range 100 {
		name := fmt.Sprintf("%s%02d.example/%s", strings.Repeat("a", 10), i, strings.Repeat("b", 36))
		resources[corev1.ResourceName(name)] = resource.MustParse("123456789012345678")
	}
	objects := []client.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Status: corev1.NodeStatus{Capacity: resources, Allocatable: resources}}}
	for _, name := range []string{agent.DefaultBootstrapSecret, ocm.HubKubeconfigSecret} {
		objects = append(objects, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: agent.DefaultNamespace, Name: name},
			Data:       map[string][]byte{"kubeconfig": []byte(kubeconfig)}})
	}
	for i := range 30 {
		claim := &unstructured.Unstructured{Object: map[string]any{
			"spec": map[string]any{"value": strings.Repeat("<", 1024)}}}
		claim.SetAPIVersion(ocm.GroupVersion.Group + "/v1alpha1")
		claim.SetKind("ClusterClaim")
		claim.SetName(fmt.Sprintf("%s%02d", strings.Repeat("a.", 125), i))
		objects = append(objects, claim)
	}
	for i, name := range []string{"id.k8s.io", "kubeversion.open-cluster-management.io",
		"platform.open-cluster-management.io", "product.open-cluster-management.io"} {
		claim, _ := objects[len(objects)-1-i].DeepCopyObject().(client.Object)
		claim.SetName(name)
		objects = append(objects, claim)
	}
	return fake.NewClientBuilder().WithScheme(regtest.Scheme(t)).WithObjects(objects...).Build()
}

// A released hub with our policies takes the largest report of an agent.
func TestAReleasedHubTakesTheLargestClusterStatus(t *testing.T) {
	k := startReleased(t)
	stop := k.run(t, k.controllerConfig(), 4, newHubDriver("one", driverAnnotation))
	defer stop()
	own := k.accepted(t, "largest")
	a, err := agent.New(agent.Options{Cluster: "largest", Driver: idleDriver{}, Local: largestCluster(t),
		ClusterStatus: true, NewHubClient: func(*rest.Config) (client.Client, error) { return own, nil }})
	regtest.Must(t, err)
	for range 2 {
		_, err := a.Reconcile(t.Context(), reconcile.Request{})
		regtest.Must(t, err)
	}
	s := k.Cluster("largest").Status
	if !meta.IsStatusConditionTrue(s.Conditions, ocm.ConditionJoined) || s.Capacity["cpu"] != "2" ||
		s.Allocatable["cpu"] != "2" || len(s.Capacity) < 60 || len(s.Allocatable) < 60 || len(s.ClusterClaims) != 24 {
		t.Errorf("%d resources, %d allocatable, %d claims, conditions %+v", len(s.Capacity), len(s.Allocatable),
			len(s.ClusterClaims), s.Conditions)
	}
	c := meta.FindStatusCondition(s.Conditions, ocm.ConditionClusterStatus)
	if c == nil || c.Reason != "ClusterStatusTruncated" || !strings.Contains(c.Message, "10 ClusterClaims") ||
		!strings.Contains(c.Message, "resources of the nodes are not reported") {
		t.Errorf("the condition is %+v", c)
	}
}
