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

// GetRole returns the ClusterRole of a cluster, empty if there is none.
func GetRole(ctx context.Context, c client.Reader, cluster string) (*rbacv1.ClusterRole, error) {
	role := &rbacv1.ClusterRole{}
	name := registration.ClusterRoleName(cluster)
	if err := c.Get(ctx, client.ObjectKey{Name: name}, role); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("get ClusterRole %q: %w", name, err)
	}
	return role, nil
}

// RecordIn returns the agent that a cluster is accepted for, with the key of
// its approved first request. Agent is "" if none is recorded.
func RecordIn(role *rbacv1.ClusterRole, cluster string) Request {
	return Request{Cluster: cluster, Agent: role.Annotations[ocm.AgentAnnotation], Key: role.Annotations[ocm.AgentKeyAnnotation]}
}

// Record records the agent of a request in the role of its cluster. It fails if the role has changed since it was read.
func Record(ctx context.Context, c client.Client, role *rbacv1.ClusterRole, request Request) error {
	role = role.DeepCopy()
	metav1.SetMetaDataAnnotation(&role.ObjectMeta, ocm.AgentAnnotation, request.Agent)
	metav1.SetMetaDataAnnotation(&role.ObjectMeta, ocm.AgentKeyAnnotation, request.Key)
	if err := c.Update(ctx, role); err != nil {
		return fmt.Errorf("record the agent %q in ClusterRole %q: %w", request.Agent, role.Name, err)
	}
	return nil
}

// Replaces returns the agent that the approval of a request would replace, "" if it replaces none.
func Replaces(ctx context.Context, c client.Reader, csr *certificatesv1.CertificateSigningRequest) (agent string, err error) {
	request, err := Parse(csr)
	if err != nil {
		return "", fmt.Errorf("CertificateSigningRequest %q: %w", csr.Name, err)
	}
	role, err := GetRole(ctx, c, request.Cluster)
	if err != nil {
		return "", err
	}
	if recorded := RecordIn(role, request.Cluster); recorded != request {
		return recorded.Agent, nil
	}
	return "", nil
}

// Approve approves a request on behalf of an administrator; the message names
// the command. From then on the hub approves only requests of this agent, and
// no longer of the agent in the cluster's ClusterRole. Replacing that agent
// needs the right to write the ClusterRole. If the ClusterRole names no agent
// or does not exist yet, the hub finds the approved request and records its
// agent.
func Approve(ctx context.Context, c client.Client, csr *certificatesv1.CertificateSigningRequest, message string) error {
	request, err := Parse(csr)
	if err != nil {
		return fmt.Errorf("approve CertificateSigningRequest %q: %w", csr.Name, err)
	}
	err = optimistic.Write(ctx, apierrors.IsConflict, func() error { return replaceAgent(ctx, c, request) })
	if err != nil {
		return err
	}
	return SetApproved(ctx, c, csr, message)
}

func replaceAgent(ctx context.Context, c client.Client, request Request) error {
	role, err := GetRole(ctx, c, request.Cluster)
	if err != nil {
		return err
	}
	// A denied cluster's role has no auth type.
	authType, recorded := role.Annotations[ocm.AuthTypeAnnotation], RecordIn(role, request.Cluster)
	if cmp.Or(authType, registration.AuthTypeCSR) != registration.AuthTypeCSR || role.ResourceVersion == "" || recorded == request {
		return nil
	}
	if err = Record(ctx, c, role, request); apierrors.IsForbidden(err) && cmp.Or(recorded.Agent, request.Agent) == request.Agent {
		return nil
	}
	return err
}

// SetApproved adds the approval to a request. It records nothing.
func SetApproved(ctx context.Context, c client.Client, csr *certificatesv1.CertificateSigningRequest, message string) error {
	approved := csr.DeepCopy()
	approved.Status.Conditions = append(approved.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "ClusterRegistration", Message: message})
	if err := c.SubResource("approval").Update(ctx, approved); err != nil {
		return fmt.Errorf("approve CertificateSigningRequest %q: %w", csr.Name, err)
	}
	return nil
}

// Decision returns the condition that ends the wait for an approval or a signature, or nil.
func Decision(csr *certificatesv1.CertificateSigningRequest, types ...certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequestCondition {
	for i := range csr.Status.Conditions {
		if slices.Contains(types, csr.Status.Conditions[i].Type) {
			return &csr.Status.Conditions[i]
		}
	}
	return nil
}
