package hub

import (
	"context"
	"errors"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

// relaySuffix ends the name of the ClusterRole and the ClusterRoleBinding that
// let the relay act as the agent of a cluster.
const relaySuffix = ":relay"

// bindRelay lets the relay act as the recorded agent of a cluster. Without a
// record it grants nothing, because a rule without names allows all names.
func (h *Hub) bindRelay(ctx context.Context, cluster string, record *rbacv1.ClusterRole) error {
	agent := record.Annotations[ocm.AgentAnnotation]
	if !h.options.Relay || agent == "" {
		return h.unbindRelay(ctx, cluster)
	}
	want, have := relayRole(cluster, agent), &rbacv1.ClusterRole{}
	err := client.IgnoreNotFound(h.reader().Get(ctx, client.ObjectKeyFromObject(want), have))
	switch {
	case err != nil:
	case have.ResourceVersion == "":
		err = h.options.Client.Create(ctx, want)
	case !isOf(have, cluster):
		return taken("ClusterRole", have, cluster)
	case have.AggregationRule != nil || !equality.Semantic.DeepEqual(have.Rules, want.Rules):
		have.Rules, have.AggregationRule = want.Rules, nil
		err = h.options.Client.Update(ctx, have)
	}
	if err != nil {
		return fmt.Errorf("write ClusterRole %q: %w", want.Name, err)
	}
	return h.bindAs(ctx, cluster, relayBinding(cluster))
}

// unbindRelay deletes the binding last. The cache holds no roles, so after an
// earlier failure the binding remains as a sign.
func (h *Hub) unbindRelay(ctx context.Context, cluster string) error {
	want := relayBinding(cluster)
	have, err := h.binding(ctx, h.options.Client, want)
	if have == nil || !isOf(have, cluster) && !sameBinding(have, want) {
		return err
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: want.Name}}
	err = errors.Join(client.IgnoreNotFound(h.options.Client.Delete(ctx, role)), h.drop(ctx, have, want))
	if err != nil {
		return fmt.Errorf("delete the relay's rights for cluster %q: %w", cluster, err)
	}
	return nil
}

// relayRole names the user and the groups in the certificate of an agent.
func relayRole(cluster, agent string) *rbacv1.ClusterRole {
	rule := func(resource string, names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{resource},
			ResourceNames: names,
			Verbs:         []string{"impersonate:user-info"}}
	}
	return &rbacv1.ClusterRole{ObjectMeta: relayMeta(cluster), Rules: []rbacv1.PolicyRule{
		rule("users", registration.AgentUser(cluster, agent)),
		rule("groups", registration.ClusterGroup(cluster), ocm.ManagedClustersGroup),
	}}
}

func relayBinding(cluster string) *rbacv1.ClusterRoleBinding {
	meta := relayMeta(cluster)
	return &rbacv1.ClusterRoleBinding{ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ocm.RelayNamespace, Name: ocm.RelayName}}}
}

func relayMeta(cluster string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: registration.ClusterRoleName(cluster) + relaySuffix,
		Labels: map[string]string{ocm.ClusterNameLabel: cluster}}
}
