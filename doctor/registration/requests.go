package registration

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/kube"
	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

type certificateRequest = certificatesv1.CertificateSigningRequest

// listRequests returns the requests of the agent and its add-ons, the newest first.
func (e *examination) listRequests(ctx context.Context) ([]certificateRequest, error) {
	list, _, err := kube.List[certificateRequest](ctx, e.Hub, certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"),
		client.MatchingLabels{ocm.ClusterNameLabel: e.ClusterName})
	slices.SortStableFunc(list, func(a, b certificateRequest) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	return list, err
}

// ownRequests leaves out those of add-ons.
func (e *examination) ownRequests() []certificateRequest {
	return slices.DeleteFunc(slices.Clone(e.requests), func(r certificateRequest) bool { return r.Labels[addon.NameLabel] != "" })
}

// decision returns the last condition of a request. The zero value means that it is pending.
func decision(r *certificateRequest) (last certificatesv1.CertificateSigningRequestCondition) {
	for _, c := range r.Status.Conditions {
		if c.Status != corev1.ConditionFalse {
			last = c
		}
	}
	return last
}

func describe(f doctor.Finding, r *certificateRequest, want string) doctor.Finding {
	d := decision(r)
	state := cmp.Or(string(d.Type), "Pending")
	return f.Compare("request", fmt.Sprintf("%s, by user %.300s", state, r.Spec.Username), "expected", want).
		Detail("name", fmt.Sprintf("%.100s", r.Name)).Detail("message", fmt.Sprintf("%.1000s", d.Message))
}

// maxRequests is where the agent of Open Cluster Management stops making more.
const maxRequests = 10

func (e *examination) checkRequests(context.Context) doctor.Finding {
	own := e.ownRequests()
	joined := e.isTrue(ocm.ConditionJoined)
	settled := joined && e.isTrue(ocm.ConditionAvailable)
	halted := e.condition(ocm.ConditionCertificateRotated).Status == metav1.ConditionFalse
	switch {
	case e.requestsErr != nil:
		return kube.Unread("the requests for certificates", e.requestsErr, "kubectl get csr -l "+ocm.ClusterNameLabel+"="+e.name())
	case !e.usesCertificates() && len(own) == 0:
		return doctor.Skipped("The cluster registers without a certificate.")
	case len(own) >= maxRequests:
		f := doctor.Failed("O9", doctor.Do("Correct why they are not approved or not used, then delete them at the hub:", "kubectl delete csr -l "+ocm.ClusterNameLabel+"="+e.name()),
			"There are %d requests for certificates; the agent makes no more.", len(own))
		if settled && !halted {
			f.Result = doctor.Warn
		}
		return f
	case len(own) == 0 && joined:
		return doctor.Passed("No request is pending; the hub forgets old ones.")
	case len(own) == 0:
		return doctor.Failed("O2", e.readLog("In the cluster, read the agent's log:"), "The agent has not asked for a certificate, or the hub has forgotten that.").As(doctor.Warn)
	}
	return e.judgeRequest(&own[max(0, slices.IndexFunc(own, e.fromAgent))], settled)
}

// fromAgent reports whether the user of the request is the agent, or an identity that agents bootstrap with. Every user who may
// create requests can choose the label.
func (e *examination) fromAgent(r certificateRequest) bool {
	return e.byAgent(&r) || strings.HasPrefix(r.Spec.Username, "system:bootstrap:") || slices.Contains(r.Spec.Groups, registration.BootstrapGroup) ||
		r.Spec.Username == registration.BootstrapUser
}

func (e *examination) byAgent(r *certificateRequest) bool {
	return strings.HasPrefix(r.Spec.Username, registration.AgentUser(e.ClusterName, ""))
}

// foreign returns the finding of a request that nothing ties to the agent.
func foreign(r *certificateRequest) doctor.Finding {
	return doctor.Failed("O47", doctor.Do("Do not approve it. At the hub, delete it unless you know the user:", "kubectl delete csr "+shell.Word(r.Name, "NAME")),
		"The pending request for a certificate is not the agent's.")
}

// judgeRequest judges the agent's newest request, since the agent has given up the others.
func (e *examination) judgeRequest(r *certificateRequest, settled bool) doctor.Finding {
	name, want := shell.Word(r.Name, "NAME"), "Approved, with a certificate"
	var f doctor.Finding
	switch d := decision(r); {
	case d.Type == certificatesv1.CertificateDenied:
		f = doctor.Failed("O4", doctor.Do("At the hub, delete the request, so that the agent asks again:", "kubectl delete csr "+name), "The request for a certificate was denied.")
	case d.Type == certificatesv1.CertificateFailed:
		f = doctor.Failed("O5", doctor.Do("Use a hub that signs for kubernetes.io/kube-apiserver-client, or register with an AWS role on EKS."),
			"The hub cannot sign the request for a certificate.")
	case d.Type == "" && !e.fromAgent(*r):
		if f, want = foreign(r), "from user "+registration.AgentUser(e.ClusterName, "AGENT"); settled {
			f.Result = doctor.Warn
		}
	case d.Type == "":
		f = doctor.Failed("O3", doctor.Do("At the hub, approve it if the user is the agent's, with wid or kubectl:", e.accept()+" --approve-request "+name,
			"kubectl certificate approve "+name), "The request for a certificate is pending.")
		if settled { // the old certificate is still valid
			f.Result = doctor.Warn
		}
	case len(r.Status.Certificate) == 0:
		f = doctor.Failed("O6", doctor.Do("Run the signer of the hub; kube-controller-manager takes these. EKS has none: use an AWS role.",
			"--controllers=*,csrsigning", "--cluster-signing-cert-file=FILE"), "The request is approved, but not signed.")
	case e.joinedAgain(r):
		want = "from user " + registration.AgentUser(e.ClusterName, "AGENT")
		f = doctor.Failed("O8", doctor.Do("At the hub, delete the ManagedCluster, which also removes its workloads, then join again:", "kubectl delete managedcluster "+e.name()),
			"A cluster joins under the name of one that had joined before, whose objects are in its way.")
	default:
		return doctor.Passed("The newest request is approved and signed.").Detail("name", r.Name)
	}
	return describe(f, r, want)
}

func (e *examination) rejoin() doctor.Remedy {
	return doctor.Do("In the cluster, delete what is left of an older registration, then join again:",
		"kubectl delete secret -n "+e.agentNamespace+" hub-kubeconfig-secret bootstrap-hub-kubeconfig")
}

// joinedAgain recognizes an agent that had joined by the user of its request: it would have renewed as itself.
func (e *examination) joinedAgain(r *certificateRequest) bool {
	joined := e.condition(ocm.ConditionJoined)
	return joined.Status == metav1.ConditionTrue && !e.isTrue(ocm.ConditionAvailable) &&
		!e.byAgent(r) && r.CreationTimestamp.After(joined.LastTransitionTime.Time)
}
