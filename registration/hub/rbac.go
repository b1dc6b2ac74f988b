package hub

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/internal/refusal"
	"github.com/workloadid/workloadid/registration/ocm"
)

// ClusterRoles that clusters get in their namespaces. They are part of HubRBAC.
const (
	registrationRole = "open-cluster-management:managedcluster:registration"
	workRole         = "open-cluster-management:managedcluster:work"
)

// wasGranted reports whether a ClusterRole records a grant, or the agent of a
// denied cluster.
func wasGranted(role *rbacv1.ClusterRole) bool {
	_, granted := registration.RecordedClaim(role)
	return granted || role.Annotations[ocm.AgentAnnotation] != ""
}

// isPending reports whether a ClusterRole publishes the claim of a cluster that
// is not accepted.
func isPending(role *rbacv1.ClusterRole) bool {
	return role.Annotations[ocm.PendingSourceAnnotation] != ""
}

// isForeign reports whether an existing ClusterRole belongs neither to the hub
// nor to the cluster.
func isForeign(role *rbacv1.ClusterRole, cluster string) bool {
	return role.ResourceVersion != "" && !wasGranted(role) && !isPending(role) && !isOf(role, cluster)
}

// role reads the ClusterRole of a cluster, without the cache. A grant by the
// record of a deleted role could not be revoked. Without a ClusterRole the
// result is empty.
func (h *Hub) role(ctx context.Context, cluster string) (*rbacv1.ClusterRole, error) {
	role := &rbacv1.ClusterRole{}
	if err := h.reader().Get(ctx, client.ObjectKey{Name: registration.ClusterRoleName(cluster)},
		role); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read ClusterRole %q: %w", registration.ClusterRoleName(cluster), err)
	}
	return role, nil
}

// publish shows the claim of a cluster that is not accepted, in its ClusterRole
// without rules. Only the hub can run the Go code that reads a claim.
func (h *Hub) publish(
	ctx context.Context, cluster *ocm.ManagedCluster, have *rbacv1.ClusterRole, claimed registration.Claim,
) error {
	want := have.DeepCopy()
	want.Rules, want.AggregationRule = nil, nil
	registration.PublishClaim(want, cluster, claimed)
	return h.writeRole(ctx, cluster.Name, have, want)
}

// writeRole writes the ClusterRole of a cluster, unless it equals want.
func (h *Hub) writeRole(ctx context.Context, cluster string, have, want *rbacv1.ClusterRole) (err error) {
	if isForeign(have, cluster) {
		return taken("ClusterRole", have, cluster)
	}
	want.Name = registration.ClusterRoleName(cluster)
	metav1.SetMetaDataLabel(&want.ObjectMeta, ocm.ClusterNameLabel, cluster)
	switch {
	case have.ResourceVersion == "":
		err = h.options.Client.Create(ctx, want)
	case !equality.Semantic.DeepEqual(have, want):
		err = h.options.Client.Update(ctx, want)
	}
	if err != nil {
		return fmt.Errorf("write ClusterRole %q: %w", want.Name, err)
	}
	return nil
}

// wantedRole returns a repaired copy of the ClusterRole of a cluster.
func (h *Hub) wantedRole(cluster string, have *rbacv1.ClusterRole, granted registration.Claim) *rbacv1.ClusterRole {
	want := have.DeepCopy()
	want.Rules, want.AggregationRule = clusterRules(cluster, h.options.OCMAgents), nil
	metav1.SetMetaDataLabel(&want.ObjectMeta, ocm.ClusterNameLabel, cluster)
	metav1.SetMetaDataAnnotation(&want.ObjectMeta, ocm.AuthTypeAnnotation, granted.AuthType)
	metav1.SetMetaDataAnnotation(&want.ObjectMeta, ocm.ClaimAnnotation, granted.Value)
	for _, key := range []string{ocm.PendingAuthTypeAnnotation, ocm.PendingClaimAnnotation, ocm.PendingSourceAnnotation} {
		delete(want.Annotations, key)
	}
	return want
}

// isOf reports whether an object has the label of a cluster.
func isOf(o client.Object, cluster string) bool {
	return o.GetLabels()[ocm.ClusterNameLabel] == cluster
}

// taken refuses to change an object that another program has created.
func taken(kind string, o client.Object, cluster string) error {
	return refusal.New(reasonRBACTaken,
		"the %s %q exists and is not of cluster %q: delete it, or deny this cluster and choose another name",
		kind, o.GetName(), cluster)
}

// clusterRules let an agent ask for certificates, and use its own
// ManagedCluster. OCM's agents list and watch through informers, write whole
// objects, and ask for the right to renew without a name. OCM's webhook adds a
// cluster without a cluster set to the default one.
func clusterRules(cluster string, ocmAgents bool) []rbacv1.PolicyRule {
	rule := func(group, resource string, names []string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names,
			Verbs: verbs}
	}
	own := []string{cluster}
	rules := []rbacv1.PolicyRule{
		rule("certificates.k8s.io", "certificatesigningrequests", nil, "create", "get"),
		rule(ocm.GroupVersion.Group, "managedclusters", own, "get", "patch"),
		rule(ocm.GroupVersion.Group, "managedclusters/status", own, "patch"),
		rule(ocm.GroupVersion.Group, "managedclustersets/join", []string{"default"}, "create"),
		rule("register.open-cluster-management.io", "managedclusters/clientcertificates", own, "renew"),
	}
	if !ocmAgents {
		return rules
	}
	return append(rules,
		rule("certificates.k8s.io", "certificatesigningrequests", nil, "list", "watch"),
		rule(ocm.GroupVersion.Group, "managedclusters", own, "list", "watch", "update"),
		rule(ocm.GroupVersion.Group, "managedclusters/status", own, "update"),
		rule("register.open-cluster-management.io", "managedclusters/clientcertificates", nil, "renew"))
}

// deleteRecord deletes a role together with its record, unless it has changed
// since it was read. A denied cluster keeps the recorded agent and its
// published claim in a role without rules. deleteRecord never deletes a role in
// which the hub wrote nothing.
func (h *Hub) deleteRecord(ctx context.Context, role *rbacv1.ClusterRole, denied bool) (err error) {
	_, granted := registration.RecordedClaim(role)
	switch keep := denied && (role.Annotations[ocm.AgentAnnotation] != "" || isPending(role)); {
	case !wasGranted(role) && !isPending(role), keep && !granted:
		return nil
	case keep:
		role.Rules, role.AggregationRule = nil, nil
		delete(role.Annotations, ocm.AuthTypeAnnotation)
		delete(role.Annotations, ocm.ClaimAnnotation)
		err = h.options.Client.Update(ctx, role)
	default:
		err = h.options.Client.Delete(ctx, role, client.Preconditions{UID: &role.UID, ResourceVersion: &role.ResourceVersion})
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete the record in ClusterRole %q: %w", role.Name, err)
	}
	return nil
}

// ensureNamespace creates the namespace of a cluster. An existing namespace
// without our label belongs to something else.
func (h *Hub) ensureNamespace(ctx context.Context, cluster string) error {
	namespace := &corev1.Namespace{}
	err := h.options.Client.Get(ctx, client.ObjectKey{Name: cluster}, namespace)
	if apierrors.IsNotFound(err) {
		namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster,
			Labels: map[string]string{ocm.ClusterNameLabel: cluster}}}
		err = h.options.Client.Create(ctx, namespace)
	}
	if err != nil {
		return fmt.Errorf("namespace of cluster %q: %w", cluster, err)
	}
	if namespace.Labels[ocm.ClusterNameLabel] != cluster {
		return refusal.New(reasonNamespaceTaken,
			"the namespace %q exists and is not of this cluster: choose another cluster name, since the agent would get rights in that namespace", cluster)
	}
	return nil
}

// checkUnused refuses automatic approval if the cluster's namespace exists,
// because the cluster would get its content.
func (h *Hub) checkUnused(ctx context.Context, cluster string, claimed registration.Claim) error {
	err := h.options.Client.Get(ctx, client.ObjectKey{Name: cluster}, &corev1.Namespace{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("namespace of cluster %q: %w", cluster, err)
	}
	return refusal.New(reasonNamespaceTaken,
		"the configuration of the hub approves %s, but the namespace %q exists and may hold the work of an earlier cluster of this name: delete the namespace, or look at it and accept the cluster",
		claimed, cluster)
}

// bindings returns the bindings of an accepted cluster.
func bindings(cluster string) []client.Object {
	name := registration.ClusterRoleName(cluster)
	named := func(namespace, suffix string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name + suffix,
			Labels: map[string]string{ocm.ClusterNameLabel: cluster}}
	}
	role := func(name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
	}
	var subjects []rbacv1.Subject
	for _, group := range registration.ClusterGroups(cluster) {
		subjects = append(subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group})
	}
	return []client.Object{
		&rbacv1.ClusterRoleBinding{ObjectMeta: named("", ""), RoleRef: role(name), Subjects: subjects},
		&rbacv1.RoleBinding{ObjectMeta: named(cluster, ":registration"), RoleRef: role(registrationRole), Subjects: subjects},
		&rbacv1.RoleBinding{ObjectMeta: named(cluster, ":work"), RoleRef: role(workRole), Subjects: subjects},
	}
}

// bind creates the bindings of a cluster.
func (h *Hub) bind(ctx context.Context, cluster string) error {
	for _, want := range bindings(cluster) {
		if err := h.bindAs(ctx, cluster, want); err != nil {
			return err
		}
	}
	return nil
}

// bindAs creates a binding. It replaces one that differs, because no update can
// change its role.
func (h *Hub) bindAs(ctx context.Context, cluster string, want client.Object) error {
	have, err := h.binding(ctx, h.options.Client, want)
	labelled, same := have != nil && isOf(have, cluster), have != nil && sameBinding(have, want)
	if have != nil && !labelled && !same {
		return taken("binding", have, cluster)
	}
	if have != nil && !have.GetDeletionTimestamp().IsZero() && len(have.GetFinalizers()) > 0 &&
		!slices.Equal(have.GetFinalizers(), []string{workFinalizer}) {
		return refusal.New(reasonRBACTaken,
			"the binding %q of cluster %q is being deleted, and the finalizers %.300q keep it: remove them", have.GetName(),
			cluster, have.GetFinalizers())
	}
	if have != nil && (!labelled || !same) {
		err = h.drop(ctx, have, want)
		have = nil
	}
	if err == nil && have == nil {
		err = h.options.Client.Create(ctx, want)
	}
	if err != nil {
		return fmt.Errorf("write binding %q of cluster %q: %w", want.GetName(), cluster, err)
	}
	return nil
}

// unbind deletes the bindings of a cluster. The namespace stays.
func (h *Hub) unbind(ctx context.Context, cluster string) (errs error) {
	errs = h.unbindRelay(ctx, cluster)
	for _, b := range bindings(cluster) {
		have, err := h.binding(ctx, h.options.Client, b)
		if have != nil && (isOf(have, cluster) || sameBinding(have, b)) {
			err = h.drop(ctx, have, b)
		}
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("delete binding %q of cluster %q: %w", b.GetName(), cluster, err))
		}
	}
	return errs
}

// workFinalizer is the finalizer of bindings that the hub of Open Cluster
// Management created. Its work agents clean up while the binding is deleted.
const workFinalizer = "cluster.open-cluster-management.io/manifest-work-cleanup"

// drop deletes a binding. Finalizers keep a deleted binding in force, so drop
// removes its subjects first. A binding to another role does not belong to the
// hub: the API server lets the hub delete it, but not change it. drop updates
// the live binding, because the cache holds only a part.
func (h *Hub) drop(ctx context.Context, binding, want client.Object) error {
	role, _ := partsOf(binding)
	if ours, _ := partsOf(want); len(binding.GetFinalizers()) > 0 && *role == *ours {
		live, err := h.binding(ctx, h.reader(), binding)
		if live == nil {
			return err
		}
		controllerutil.RemoveFinalizer(live, workFinalizer)
		_, subjects := partsOf(live)
		*subjects = nil
		if err := h.options.Client.Update(ctx, live); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	return client.IgnoreNotFound(h.options.Client.Delete(ctx, binding))
}

// binding reads the binding with the name of another one. It returns nil if
// there is none.
func (h *Hub) binding(ctx context.Context, from client.Reader, like client.Object) (client.Object, error) {
	var have client.Object = &rbacv1.RoleBinding{}
	if like.GetNamespace() == "" {
		have = &rbacv1.ClusterRoleBinding{}
	}
	if err := from.Get(ctx, client.ObjectKeyFromObject(like), have); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return have, nil
}

func sameBinding(a, b client.Object) bool {
	roleA, subjectsA := partsOf(a)
	roleB, subjectsB := partsOf(b)
	return *roleA == *roleB && slices.Equal(*subjectsA, *subjectsB)
}

// partsOf returns the role and the subjects of a binding.
func partsOf(binding client.Object) (*rbacv1.RoleRef, *[]rbacv1.Subject) {
	switch b := binding.(type) {
	case *rbacv1.ClusterRoleBinding:
		return &b.RoleRef, &b.Subjects
	case *rbacv1.RoleBinding:
		return &b.RoleRef, &b.Subjects
	}
	return &rbacv1.RoleRef{}, &[]rbacv1.Subject{}
}
