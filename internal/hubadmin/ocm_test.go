package hubadmin_test

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/workloadid/workloadid/internal/hubadmin"
)

func program(namespace, app string, replicas *int32) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a-" + app}}
	d.Spec.Replicas, d.Spec.Template.Labels = replicas, map[string]string{"app": app}
	return d
}

// Programs that are stopped, or that others run under the same label, do not count. The add-on manager counts if we serve tokens.
func TestOCMPrograms(t *testing.T) {
	const operator, hub, addOns = "cluster-manager", "clustermanager-registration-controller", "clustermanager-addon-manager-controller"
	const here = "open-cluster-management-hub"
	none := int32(0)
	for name, row := range map[string]struct {
		deployments []*appsv1.Deployment
		tokens      bool
		want        string
	}{
		"nothing":         {want: "[]"},
		"operator first":  {[]*appsv1.Deployment{program(here, hub, nil), program("open-cluster-management", operator, nil)}, false, "[open-cluster-management/a-cluster-manager " + here + "/a-" + hub + "]"},
		"stopped":         {[]*appsv1.Deployment{program(here, hub, &none)}, false, "[]"},
		"elsewhere":       {[]*appsv1.Deployment{program("team-a", hub, nil)}, false, "[]"},
		"add-on manager":  {[]*appsv1.Deployment{program(here, addOns, nil)}, false, "[]"},
		"both, on tokens": {[]*appsv1.Deployment{program(here, addOns, nil)}, true, "[" + here + "/a-" + addOns + "]"},
	} {
		t.Run(name, func(t *testing.T) {
			b := fake.NewClientBuilder()
			for _, d := range row.deployments {
				b = b.WithObjects(d)
			}
			running, err := hubadmin.OCMPrograms(t.Context(), b.Build(), row.tokens)
			if got := fmt.Sprint(running); err != nil || got != row.want {
				t.Errorf("got %s, %v, want %s", got, err, row.want)
			}
		})
	}
}

func TestOCMBinding(t *testing.T) {
	for name, want := range map[string]bool{"open-cluster-management:cluster-manager-registration:controller": true, "mine-registration:controller": false,
		"open-cluster-management:hub:registration": false} {
		c := fake.NewClientBuilder().WithObjects(&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}).Build()
		if got, err := hubadmin.OCMBinding(t.Context(), c); err != nil || (got == name) != want {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}
