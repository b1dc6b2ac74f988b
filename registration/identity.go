package registration

import (
	"context"
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/registration/ocm"
)

// ClusterGroup returns the group in the certificate of a cluster's agent.
func ClusterGroup(cluster string) string { return "system:open-cluster-management:" + cluster }

// ClusterGroups returns the groups in the RBAC of a cluster. EKS access entries
// use the second one, because EKS refuses names that begin with "system:".
func ClusterGroups(cluster string) []string {
	return []string{ClusterGroup(cluster), "open-cluster-management:" + cluster}
}

// AgentUser returns the user name of a cluster's agent.
func AgentUser(cluster, agent string) string { return ClusterGroup(cluster) + ":" + agent }

// AddOnSubject returns the identity in the certificate of an add-on without a
// subject of its own. Approvers of OCM's add-on framework require the second
// group.
func AddOnSubject(cluster, addOn, agent string) ocm.Subject {
	user := "system:open-cluster-management:cluster:" + cluster + ":addon:" + addOn
	return ocm.Subject{User: user + ":agent:" + agent,
		Groups: []string{user, "system:open-cluster-management:addon:" + addOn}}
}

// ClusterRoleName returns the name of the ClusterRole and the
// ClusterRoleBinding that let the agent of a cluster use its own
// ManagedCluster.
func ClusterRoleName(cluster string) string {
	return "open-cluster-management:managedcluster:" + cluster
}

// GetClusterRole returns the ClusterRole of a cluster, in which the hub records
// its grants. It returns an empty one if none exists.
func GetClusterRole(ctx context.Context, c client.Reader, cluster string) (*rbacv1.ClusterRole, error) {
	role := &rbacv1.ClusterRole{}
	name := ClusterRoleName(cluster)
	if err := c.Get(ctx, client.ObjectKey{Name: name}, role); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("get ClusterRole %q: %w", name, err)
	}
	return role, nil
}

// CheckClusterName refuses a name that is not a DNS label, because the
// cluster's group and namespace derive from it. It also refuses names that
// would give the agent another object's group, namespace or ClusterRole. Groups
// of add-ons, for example, begin like the group of a cluster "addon" or
// "cluster".
func CheckClusterName(name string) error {
	if len(validation.IsDNS1123Label(name)) > 0 {
		return fmt.Errorf("the cluster name %.100q is not a DNS label: use at most 63 lower-case letters, digits and hyphens",
			name)
	}
	switch name {
	case "managed-clusters", "default", "registration", "work", "addon", "cluster":
		return fmt.Errorf("the cluster name %q is reserved: choose another one", name)
	}
	if strings.HasPrefix(name, "kube-") {
		return fmt.Errorf("the cluster name %q is reserved: choose another one", name)
	}
	return nil
}

// CheckAgentName refuses a name that is not a DNS label, because the agent's
// user name contains it.
func CheckAgentName(name string) error { return checkLabel("agent", name) }

// CheckAddOnName refuses a name that is not a DNS label, because a user name,
// groups and a ServiceAccount contain it.
func CheckAddOnName(name string) error { return checkLabel("add-on", name) }

func checkLabel(of, name string) error {
	if len(validation.IsDNS1123Label(name)) > 0 {
		return fmt.Errorf("the %s name %.100q is not a DNS label: use at most 63 lower-case letters, digits and hyphens",
			of, name)
	}
	return nil
}
