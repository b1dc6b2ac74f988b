package hubadmin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/agentrequest"
	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

// RequestCause says why Request returns no request.
type RequestCause string

const (
	// RequestNotFound means that the named request does not wait for approval.
	RequestNotFound RequestCause = "NotFound"
	// SeveralRequests means that one of them may be that of an intruder.
	SeveralRequests RequestCause = "SeveralRequests"
	// NotBootstrapUser means that the requester is not one that BootstrapManifest lets ask.
	NotBootstrapUser RequestCause = "NotBootstrapUser"
	// AnotherAgent means that the cluster has an agent, and that another agent or another key asks.
	AnotherAgent RequestCause = "AnotherAgent"
)

// RequestError refuses to pick a request without its name.
type RequestError struct {
	Cause RequestCause
	// Name is that of the request that was looked for, or the only pending one. It is free text.
	Name    string
	message string
}

func refuse(cause RequestCause, name, format string, args ...any) error {
	return &RequestError{cause, name, fmt.Sprintf(format, args...)}
}

func (e *RequestError) Error() string { return e.message }

// Request returns the request that an administrator approves together with a cluster, nil if there is none. authType is that of Claim, and
// only csr has requests. It picks the one pending request of a bootstrap user, unless the cluster has an agent that works or that the hub
// has recorded. Any other request has to be named. A RequestError explains a refusal. The hub itself approves renewals.
func Request(ctx context.Context, c client.Reader, cluster *ocm.ManagedCluster, authType, named string) (*certificatesv1.CertificateSigningRequest, error) {
	var pending []certificatesv1.CertificateSigningRequest
	if authType == registration.AuthTypeCSR {
		var err error
		if pending, err = agentrequest.Pending(ctx, c, cluster.Name); err != nil {
			return nil, err
		}
	}
	if named != "" {
		i := slices.IndexFunc(pending, func(r certificatesv1.CertificateSigningRequest) bool { return r.Name == named })
		if i < 0 {
			return nil, refuse(RequestNotFound, named, "no request %q of cluster %q waits for approval", named, cluster.Name)
		}
		return &pending[i], nil
	}
	switch {
	case len(pending) == 0 || len(pending) == 1 && isRenewal(&pending[0]):
		return nil, nil //nolint:nilnil // see above
	case len(pending) > 1:
		return nil, refuse(SeveralRequests, "", "cluster %q has %d requests, and one may be that of an intruder: %s", cluster.Name, len(pending), requesters(pending))
	case !isBootstrapUser(&pending[0].Spec):
		return nil, refuse(NotBootstrapUser, pending[0].Name, "the request of cluster %q is not that of a bootstrap user: %s", cluster.Name, requesters(pending))
	}
	if err := checkAgent(ctx, c, cluster, &pending[0]); err != nil {
		return nil, err
	}
	return &pending[0], nil
}

// checkAgent refuses a request if the cluster's agent works, or if the hub goes on with another agent.
func checkAgent(ctx context.Context, c client.Reader, cluster *ocm.ManagedCluster, r *certificatesv1.CertificateSigningRequest) error {
	agent, err := agentrequest.Replaces(ctx, c, r)
	if err != nil {
		return err
	}
	conditions := cluster.Status.Conditions
	works := meta.IsStatusConditionTrue(conditions, ocm.ConditionJoined) && meta.IsStatusConditionTrue(conditions, ocm.ConditionAvailable)
	if !works && agent == "" {
		return nil
	}
	return refuse(AnotherAgent, r.Name, "cluster %q has an agent already, recorded as %.100q, and request %q of user %.100q comes from another agent or has a new key",
		cluster.Name, agent, r.Name, r.Spec.Username)
}

// isRenewal reports whether the agent of a request has made it itself.
func isRenewal(r *certificatesv1.CertificateSigningRequest) bool {
	request, err := agentrequest.Parse(r)
	return err == nil && r.Spec.Username == request.User()
}

// isBootstrapUser reports whether registration.BootstrapManifest lets a user ask for the first certificate of a cluster.
func isBootstrapUser(spec *certificatesv1.CertificateSigningRequestSpec) bool {
	return spec.Username == regname.BootstrapUser || slices.Contains(spec.Groups, registration.BootstrapGroup)
}

func requesters(pending []certificatesv1.CertificateSigningRequest) string {
	const most = 5
	var all []string
	for _, r := range pending[:min(len(pending), most)] {
		all = append(all, fmt.Sprintf("%q of user %.100q", r.Name, r.Spec.Username))
	}
	text := strings.Join(all, ", ")
	if more := len(pending) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
