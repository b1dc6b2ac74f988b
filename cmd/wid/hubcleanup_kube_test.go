package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/internal/testing/regtest"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/hubcmd"
	"github.com/workloadid/workloadid/cmd/wid/internal/install"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

// cleanupWorld is a hub with the CronJob. The hub program runs in this process, and the test runs the job.
type cleanupWorld struct {
	*hubWorld
	job  *rest.Config // as the ServiceAccount of the CronJob
	flag string       // its kubeconfig
}

func newCleanupWorld(t *testing.T) *cleanupWorld {
	hub := kubetest.StartNew(t)
	t.Setenv("KUBECONFIG", hub.Kubeconfig(t))
	w := &cleanupWorld{hubWorld: &hubWorld{t: t, hubConfig: hub.Config()}}
	w.hub = w.client(w.hubConfig)
	printed := must(t, "hub", "init", "--image=x", "--cleanup-image=registry.example/wid:v1")
	if err := (&install.Installing{}).ApplyAll(t.Context(), hubcmd.NewHubInit(), w.hub, printed); err != nil {
		t.Fatal(err)
	}
	template := cleanupJob(t, printed).Spec.JobTemplate.Spec.Template
	w.checkRestricted(w.hub, regname.HubNamespace, template)
	w.job = w.as(w.hub, w.hubConfig, regname.HubNamespace, template.Spec.ServiceAccountName)
	w.flag = "--kubeconfig=" + writeFile(t, "job.yaml", kubeconfigOf(t, w.job.Host, w.job.CAData, nil, nil, w.job.BearerToken))
	w.until("the job may list and delete", func() bool { return w.may("list", "", "") && w.may("delete", "", "") })
	w.until("the hub serves ManagedClusters", func() bool { return w.hub.List(t.Context(), &ocm.ManagedClusterList{}) == nil })
	w.runHub()
	return w
}

// may reports whether the job has a right to ManagedClusters, or to other objects in its namespace.
func (w *cleanupWorld) may(verb, subresource, other string) bool {
	w.t.Helper()
	attributes := &authorizationv1.ResourceAttributes{Verb: verb, Group: ocm.GroupVersion.Group, Resource: "managedclusters", Subresource: subresource}
	if other != "" {
		attributes = &authorizationv1.ResourceAttributes{Verb: verb, Namespace: regname.HubNamespace, Resource: other}
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes}}
	if err := w.client(w.job).Create(w.t.Context(), review); err != nil {
		w.t.Fatal(err)
	}
	return review.Status.Allowed
}

// left accepts a cluster, and denies it when the hub has granted it everything.
func (w *cleanupWorld) left(name string) {
	w.t.Helper()
	cluster := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: ocm.ManagedClusterSpec{HubAcceptsClient: true}}
	if err := w.hub.Create(w.t.Context(), cluster); err != nil {
		w.t.Fatal(err)
	}
	w.until("the hub accepts the cluster", func() bool { return w.condition(name) == "True" })
	must(w.t, "hub", "deny", "--clusters="+name)
	w.until("the hub denies the cluster", func() bool { return w.condition(name) == "False" })
}

func (w *cleanupWorld) condition(name string) string {
	w.t.Helper()
	cluster := &ocm.ManagedCluster{}
	if err := w.hub.Get(w.t.Context(), client.ObjectKey{Name: name}, cluster); err != nil {
		w.t.Fatal(err)
	}
	if accepted := meta.FindStatusCondition(cluster.Status.Conditions, ocm.ConditionHubAccepted); accepted != nil {
		return string(accepted.Status)
	}
	return ""
}

// The CronJob starts where the Restricted Pod Security Standard is enforced. Its rights suffice to delete a cluster, whose finalizer lets the hub revoke everything first.
func TestHubCleanupOfAHub(t *testing.T) {
	w := newCleanupWorld(t)
	w.left("managed-0")
	pending := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "pending"}}
	if err := w.hub.Create(t.Context(), pending); err != nil {
		t.Fatal(err)
	}
	if out := must(t, "hub", "cleanup", w.flag); out != "none denied for 1h" || !regtest.HasCluster(t, w.hub, "managed-0") {
		t.Errorf("after less than an hour it says %s", out)
	}
	if out := must(t, "hub", "cleanup", w.flag, "--older-than=0", "--dry-run"); !strings.Contains(out, `cluster "managed-0" would be deleted`) || !regtest.HasCluster(t, w.hub, "managed-0") {
		t.Errorf("--dry-run says %s", out)
	}
	if out := must(t, "hub", "cleanup", w.flag, "--older-than=0"); !strings.HasPrefix(out, `cluster "managed-0" deleted: denied since 20`) || strings.Contains(out, "pending") {
		t.Errorf("cleanup says %s", out)
	}
	w.until("the hub lets the cluster go", func() bool {
		return apierrors.IsNotFound(w.hub.Get(t.Context(), client.ObjectKey{Name: "managed-0"}, &ocm.ManagedCluster{}))
	})
	for _, object := range []client.Object{&rbacv1.ClusterRole{}, &rbacv1.ClusterRoleBinding{}} {
		if err := w.hub.Get(t.Context(), client.ObjectKey{Name: registration.ClusterRoleName("managed-0")}, object); !apierrors.IsNotFound(err) {
			t.Errorf("%T: %v", object, err)
		}
	}
	if !regtest.HasCluster(t, w.hub, "pending") {
		t.Error("the pending cluster is deleted")
	}
	w.checkAcceptedMeanwhile()
	w.checkNeedsItsRights()
}

// acceptedMeanwhile accepts each cluster right before it is deleted.
type acceptedMeanwhile struct {
	client.Client
	accept func(name string) error
}

func (a *acceptedMeanwhile) Delete(ctx context.Context, object client.Object, opts ...client.DeleteOption) error {
	return errors.Join(a.accept(object.GetName()), a.Client.Delete(ctx, object, opts...))
}

func (w *cleanupWorld) checkAcceptedMeanwhile() {
	w.t.Helper()
	w.left("managed-1")
	hub := &acceptedMeanwhile{w.client(w.job), func(name string) error {
		_, err := wid(w.t, "", "hub", "accept", "--clusters="+name)
		return err
	}}
	var out strings.Builder
	cmd := hubcmd.NewHubCleanup()
	cmd.SetOut(&out)
	err := hubcmd.CleanUp(w.t.Context(), cmd, hub, 0, false)
	if err != nil || !strings.HasPrefix(out.String(), `cluster "managed-1" left alone`) || !regtest.HasCluster(w.t, w.hub, "managed-1") {
		w.t.Errorf("cleanup of a cluster that is accepted meanwhile says %q, %v", out.String(), err)
	}
	w.until("the hub accepts the cluster again", func() bool { return w.condition("managed-1") == "True" })
}

// checkNeedsItsRights takes away each right. There are no others.
func (w *cleanupWorld) checkNeedsItsRights() {
	w.t.Helper()
	for _, verb := range []string{"get", "watch", "create", "update", "patch", "deletecollection"} {
		if w.may(verb, "", "") {
			w.t.Errorf("the job may %s ManagedClusters", verb)
		}
	}
	if w.may("update", "accept", "") || w.may("patch", "status", "") || w.may("get", "", "secrets") || w.may("list", "", "pods") {
		w.t.Error("the job has a right that it does not need")
	}
	w.left("managed-2")
	role := &rbacv1.ClusterRole{}
	if err := w.hub.Get(w.t.Context(), client.ObjectKey{Name: "open-cluster-management:hub:cleanup"}, role); err != nil {
		w.t.Fatal(err)
	}
	for verb, rest := range map[string]string{"list": "delete", "delete": "list"} {
		role.Rules[0].Verbs = []string{rest}
		if err := w.hub.Update(w.t.Context(), role); err != nil {
			w.t.Fatal(err)
		}
		w.until("the job may not "+verb, func() bool { return w.may(rest, "", "") && !w.may(verb, "", "") })
		w.fails(cli.ExitDenied, verb, "hub", "cleanup", w.flag, "--older-than=0")
	}
	if !regtest.HasCluster(w.t, w.hub, "managed-2") {
		w.t.Error("deleted without the right to it")
	}
}
