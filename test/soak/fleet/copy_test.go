package fleet

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

// copyOf returns the same object of another cluster.
func copyOf(from client.Object, cluster string) client.Object {
	o, _ := from.DeepCopyObject().(client.Object)
	rename := strings.NewReplacer(registration.ClusterRoleName(first), registration.ClusterRoleName(cluster))
	o.SetName(rename.Replace(o.GetName()))
	if o.GetNamespace() != "" {
		o.SetNamespace(cluster)
	}
	if labels := o.GetLabels(); labels[ocm.ClusterNameLabel] != "" {
		labels[ocm.ClusterNameLabel] = cluster
		delete(labels, corev1.LabelMetadataName)
	}
	o.SetResourceVersion("")
	o.SetUID("")
	o.SetManagedFields(nil)
	switch o := o.(type) {
	case *corev1.Namespace:
		o.Name = cluster
	case *rbacv1.ClusterRole:
		for _, r := range o.Rules {
			for i := range r.ResourceNames {
				if r.ResourceNames[i] == first {
					r.ResourceNames[i] = cluster
				}
			}
		}
	case *rbacv1.ClusterRoleBinding:
		o.RoleRef.Name, o.Subjects = rename.Replace(o.RoleRef.Name), subjectsOf(cluster)
	case *rbacv1.RoleBinding:
		o.Subjects = subjectsOf(cluster)
	}
	return o
}

func subjectsOf(cluster string) (subjects []rbacv1.Subject) {
	for _, group := range registration.ClusterGroups(cluster) {
		subjects = append(subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group})
	}
	return subjects
}
