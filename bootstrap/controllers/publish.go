package controllers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	flowcontrolv1ac "k8s.io/client-go/applyconfigurations/flowcontrol/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/bootstrap"
)

const (
	fieldOwner = "workloadid-publisher"
	// roleName is kubeadm's name, so that both create the same objects.
	roleName     = "kubeadm:bootstrap-signer-clusterinfo"
	anonymous    = "system:anonymous"
	priorityName = "bootstrap-discovery"
)

// Publish creates or repairs the objects that discovery by token needs:
//
//   - the namespace kube-public and cluster-info, with the given kubeconfig
//   - a Role and a RoleBinding that let anonymous clients read only that
//     ConfigMap
//   - a FlowSchema and a priority level, so that anonymous clients delay no
//     other clients
//
// It uses server-side apply and changes nothing else. Signatures stay, and a
// second run changes nothing.
func Publish(ctx context.Context, c client.Client, info *bootstrap.ClusterInfo) error {
	if info == nil {
		return errNoInfo
	}
	kubeconfig, err := info.Encode()
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	for _, object := range objects(string(kubeconfig)) {
		if err := c.Apply(ctx, object, client.FieldOwner(fieldOwner), client.ForceOwnership); err != nil {
			return fmt.Errorf("publish cluster-info: %w", err)
		}
	}
	return nil
}

func objects(kubeconfig string) []runtime.ApplyConfiguration {
	return []runtime.ApplyConfiguration{
		corev1ac.Namespace(metav1.NamespacePublic),
		corev1ac.ConfigMap(bootstrapapi.ConfigMapClusterInfo,
			metav1.NamespacePublic).WithData(map[string]string{bootstrapapi.KubeConfigKey: kubeconfig}),
		rbacv1ac.Role(roleName, metav1.NamespacePublic).WithRules(rbacv1ac.PolicyRule().
			WithAPIGroups(corev1.GroupName).WithResources("configmaps").WithResourceNames(
			bootstrapapi.ConfigMapClusterInfo).WithVerbs("get")),
		rbacv1ac.RoleBinding(roleName, metav1.NamespacePublic).
			WithRoleRef(rbacv1ac.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("Role").WithName(roleName)).
			WithSubjects(rbacv1ac.Subject().WithAPIGroup(rbacv1.GroupName).WithKind(rbacv1.UserKind).WithName(anonymous)),
		priorityLevel(),
		flowSchema(),
	}
}

// priorityLevel admits a few anonymous readers at a time and queues the others.
func priorityLevel() runtime.ApplyConfiguration {
	return flowcontrolv1ac.PriorityLevelConfiguration(priorityName).WithSpec(
		flowcontrolv1ac.PriorityLevelConfigurationSpec().
			WithType(flowcontrolv1.PriorityLevelEnablementLimited).
			WithLimited(flowcontrolv1ac.LimitedPriorityLevelConfiguration().
				WithNominalConcurrencyShares(1).WithLendablePercent(0).
				WithLimitResponse(flowcontrolv1ac.LimitResponse().WithType(flowcontrolv1.LimitResponseTypeQueue).
					WithQueuing(flowcontrolv1ac.QueuingConfiguration().WithQueues(8).WithHandSize(2).WithQueueLengthLimit(50)))))
}

func flowSchema() runtime.ApplyConfiguration {
	const precedence = 500 // before the catch-all schemas
	return flowcontrolv1ac.FlowSchema(priorityName).WithSpec(flowcontrolv1ac.FlowSchemaSpec().
		WithMatchingPrecedence(precedence).
		WithPriorityLevelConfiguration(flowcontrolv1ac.PriorityLevelConfigurationReference().WithName(priorityName)).
		WithDistinguisherMethod(
			flowcontrolv1ac.FlowDistinguisherMethod().WithType(flowcontrolv1.FlowDistinguisherMethodByUserType)).
		WithRules(flowcontrolv1ac.PolicyRulesWithSubjects().
			WithSubjects(flowcontrolv1ac.Subject().WithKind(flowcontrolv1.SubjectKindUser).WithUser(
				flowcontrolv1ac.UserSubject().WithName(anonymous))).
			WithResourceRules(flowcontrolv1ac.ResourcePolicyRule().WithAPIGroups(corev1.GroupName).WithResources("configmaps").
				WithNamespaces(metav1.NamespacePublic).WithVerbs("get"))))
}
