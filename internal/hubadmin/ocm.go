package hubadmin

import (
	"context"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/pages"
	"github.com/workloadid/workloadid/internal/regname"
)

// program is a Deployment of Open Cluster Management by the label app of its Pods.
type program struct{ namespace, app string }

// ocmHubRole is the suffix of the names of the ClusterRole and its binding that give rights to the hub program of Open Cluster Management.
// Its ServiceAccount has the same name as ours.
const ocmHubRole = "-registration:controller"

// OCMPrograms returns the Deployments of Open Cluster Management that run on a hub and do the same as package hub, in the order in which to
// stop them. With addOnTokens that includes the program which serves the tokens of add-ons. Anyone may use their labels elsewhere, so
// only their own namespaces count.
func OCMPrograms(ctx context.Context, c client.Reader, addOnTokens bool) (running []client.ObjectKey, err error) {
	programs := []program{
		{"open-cluster-management", "cluster-manager"}, // sets the other one's replicas and RBAC
		{regname.HubNamespace, "clustermanager-registration-controller"},
	}
	if addOnTokens {
		programs = append(programs, program{regname.HubNamespace, "clustermanager-addon-manager-controller"})
	}
	for _, p := range programs {
		err := pages.Each(func(opts ...client.ListOption) (string, error) {
			var list appsv1.DeploymentList
			err := c.List(ctx, &list, append(opts, client.InNamespace(p.namespace))...)
			for i := range list.Items {
				d := &list.Items[i]
				if d.Spec.Template.Labels["app"] == p.app && (d.Spec.Replicas == nil || *d.Spec.Replicas > 0) {
					running = append(running, client.ObjectKeyFromObject(d))
				}
			}
			return list.Continue, err
		})
		if err != nil {
			return nil, err
		}
	}
	return running, nil
}

// OCMBinding returns the name of the ClusterRoleBinding of the hub program of Open Cluster Management, "" if there is none. Package hub
// does not need its rights.
func OCMBinding(ctx context.Context, c client.Reader) (name string, err error) {
	err = pages.Each(func(opts ...client.ListOption) (string, error) {
		var list rbacv1.ClusterRoleBindingList
		err := c.List(ctx, &list, opts...)
		for _, b := range list.Items {
			if strings.HasPrefix(b.Name, "open-cluster-management:") && strings.HasSuffix(b.Name, ocmHubRole) {
				name = b.Name
			}
		}
		return list.Continue, err
	})
	return name, err
}
