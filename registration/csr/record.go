package csr

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/optimistic"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

// RecordIn returns the agent that a cluster is accepted for, with the key of
// its first request, from the ClusterRole of the cluster. Agent is "" without a
// record.
func RecordIn(role *rbacv1.ClusterRole, cluster string) Identity {
	recorded := role.Annotations
	return Identity{Cluster: cluster, Agent: recorded[ocm.AgentAnnotation], Key: recorded[ocm.AgentKeyAnnotation]}
}

// Record records the agent of the request in role, the ClusterRole of its
// cluster. The hub then approves only requests of this agent. The error is a
// conflict if role has changed since it was read.
func (r *Request) Record(ctx context.Context, c client.Client, role *rbacv1.ClusterRole) error {
	role = role.DeepCopy()
	metav1.SetMetaDataAnnotation(&role.ObjectMeta, ocm.AgentAnnotation, r.Agent)
	metav1.SetMetaDataAnnotation(&role.ObjectMeta, ocm.AgentKeyAnnotation, r.Key)
	if err := c.Update(ctx, role); err != nil {
		return fmt.Errorf("record the agent %q in ClusterRole %q: %w", r.Agent, role.Name, err)
	}
	return nil
}

// Replaces returns the name of the recorded agent that an approval would
// replace. It may be the same name with another key. It is "" if the approval
// replaces none.
func (r *Request) Replaces(ctx context.Context, c client.Reader) (agent string, err error) {
	role, err := registration.GetClusterRole(ctx, c, r.Cluster)
	if err != nil {
		return "", err
	}
	if recorded := RecordIn(role, r.Cluster); recorded != r.Identity {
		return recorded.Agent, nil
	}
	return "", nil
}

// Approve approves the request on behalf of an administrator; the message names
// the program. It first records the agent of the request in the cluster's
// ClusterRole, and replaces any other agent that is recorded when it writes.
// From then on the hub approves only requests of this agent. If the ClusterRole
// does not exist, or records neither a grant nor an agent, the hub finds the
// approved request and records its agent.
//
// Approve does not check the requester, and accepts no cluster: the hub gives
// the agent of a cluster without acceptance no rights. It refuses a cluster
// that was accepted with another auth type, because any certificate of the
// cluster would have the rights of that type. The error is a conflict if the
// request was decided, deleted or changed since it was read. Approve then
// records nothing.
//
// It needs the rights to approve for the signer, to update the approval of
// requests, and to get ClusterRoles. To record an agent of another name it also
// needs the right to update ClusterRoles. Without that right, Approve approves
// an agent of the same name with another key, and the record stays.
func (r *Request) Approve(ctx context.Context, c client.Client, message string) error {
	if err := setDecision(ctx, c, r.Object, certificatesv1.CertificateApproved, message, client.DryRunAll); err != nil {
		return err
	}
	err := optimistic.Write(ctx, apierrors.IsConflict, func() error { return r.replaceAgent(ctx, c) })
	if err != nil {
		return err
	}
	return setDecision(ctx, c, r.Object, certificatesv1.CertificateApproved, message)
}

// Deny denies the request on behalf of an administrator. The agent then reports
// the message. It asks again once the request is deleted, which Kubernetes does
// after an hour. Deny removes no access: to do so, withdraw the acceptance of
// the ManagedCluster. The error is a conflict if the request has changed since
// it was read.
func (r *Request) Deny(ctx context.Context, c client.Client, message string) error {
	return setDecision(ctx, c, r.Object, certificatesv1.CertificateDenied, message)
}

func (r *Request) replaceAgent(ctx context.Context, c client.Client) error {
	role, err := registration.GetClusterRole(ctx, c, r.Cluster)
	if err != nil {
		return err
	}
	// A denied cluster's role has no auth type. A pending cluster's role has no
	// agent either.
	granted, ok := registration.RecordedClaim(role)
	recorded := RecordIn(role, r.Cluster)
	switch {
	case ok && granted.AuthType != registration.AuthTypeCSR:
		return fmt.Errorf("the cluster %q was accepted with auth type %q, and a certificate would have its rights: "+
			"deny the request, or the cluster first", r.Cluster, granted.AuthType)
	case !ok && recorded.Agent == "", recorded == r.Identity:
		return nil
	}
	if err = r.Record(ctx, c, role); apierrors.IsForbidden(err) && cmp.Or(recorded.Agent, r.Agent) == r.Agent {
		return nil
	}
	return err
}

// setDecision approves or denies a request. It records nothing.
func setDecision(ctx context.Context, c client.Client, csr *certificatesv1.CertificateSigningRequest,
	as certificatesv1.RequestConditionType, message string, opts ...client.SubResourceUpdateOption) error {
	decided := csr.DeepCopy()
	decided.Status.Conditions = append(decided.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: as, Status: corev1.ConditionTrue, Reason: "ClusterRegistration", Message: message})
	operation := "approve"
	if as == certificatesv1.CertificateDenied {
		operation = "deny"
	}
	if err := c.SubResource("approval").Update(ctx, decided, opts...); err != nil {
		return fmt.Errorf("%s CertificateSigningRequest %q: %w", operation, csr.Name, err)
	}
	return nil
}

// decision returns the condition that ends the wait for an approval or a
// signature, or nil.
func decision(csr *certificatesv1.CertificateSigningRequest,
	types ...certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequestCondition {
	for i := range csr.Status.Conditions {
		if slices.Contains(types, csr.Status.Conditions[i].Type) {
			return &csr.Status.Conditions[i]
		}
	}
	return nil
}
