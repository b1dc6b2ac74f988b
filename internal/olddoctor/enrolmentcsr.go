package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// request is a CertificateSigningRequest.
type request struct {
	name, user, addon, message string
	created                    time.Time
	state                      string
	issued                     bool
}

const (
	pending  = "Pending"
	approved = "Approved"
	denied   = "Denied"
	failed   = "Failed"
)

// listRequests reads those that carry the cluster's label, the newest first.
func (e *enrolment) listRequests(ctx context.Context) (requests []request, more bool, err error) {
	items, more, err := listObjects(ctx, e.Hub, "certificates.k8s.io/v1", "CertificateSigningRequest",
		client.MatchingLabels{clusterLabel: e.ClusterName})
	for i := range items {
		requests = append(requests, requestOf(&items[i]))
	}
	slices.SortStableFunc(requests, func(a, b request) int { return b.created.Compare(a.created) })
	return requests, more, err
}

func requestOf(object *unstructured.Unstructured) request {
	user, _, _ := unstructured.NestedString(object.Object, "spec", "username")
	certificate, _, _ := unstructured.NestedString(object.Object, "status", "certificate")
	r := request{name: object.GetName(), user: user, addon: object.GetLabels()[addonLabel], state: pending,
		created: object.GetCreationTimestamp().Time, issued: certificate != ""}
	for _, state := range []string{approved, denied, failed} {
		if c, found := conditionOf(object, state); found && c.status != "False" {
			r.state, r.message = state, c.message
		}
	}
	return r
}

func (r request) field(expected string) Field {
	observed := fmt.Sprintf("%s, from %s, since %s", r.state, r.user, stamp(r.created))
	if r.message != "" {
		observed += ": " + r.message
	}
	return differs("CSR "+shown(r.name), observed, expected)
}

// own leaves those of add-ons out.
func (e *enrolment) own() (own []request) {
	for _, r := range e.requests {
		if r.addon == "" {
			own = append(own, r)
		}
	}
	return own
}

// usesIAM says that the cluster registers with an IAM role, without certificates.
func (e *enrolment) usesIAM() bool {
	_, wanted := e.irsa()
	arn, suffix := e.claimed()
	return wanted || arn != "" || suffix != ""
}

// maxRequests is where the agent stops making more.
const maxRequests = 10

func (e *enrolment) checkRequests(context.Context) Finding {
	own := e.own()
	rotation, _ := e.condition(rotated)
	halted := rotation.status == "False" && strings.Contains(rotation.message, "too many csr")
	settled := e.isTrue("ManagedClusterJoined") && e.isTrue("ManagedClusterConditionAvailable")
	switch {
	case e.Hub == nil:
		return unknown("there is no access to the hub", noHub)
	case e.csrErr != nil:
		return unread("the requests for certificates", e.csrErr, "grant list on certificatesigningrequests.certificates.k8s.io")
	case e.usesIAM() && len(own) == 0:
		return skip("the cluster registers with an IAM role, not with a certificate")
	case halted || len(own) >= maxRequests:
		return e.tooMany(own, rotation, halted || !settled)
	case len(own) == 0 && e.isTrue("ManagedClusterJoined"):
		return pass("no request waits; the hub forgets old ones")
	case len(own) == 0:
		return Finding{Result: Warn, Class: "O2", Remedy: e.agentLog(),
			Message: "there is no request for a certificate: the agent has not made one, or the hub has forgotten it after a day"}
	}
	return e.judgeRequest(own[0], settled)
}

func (e *enrolment) tooMany(own []request, rotation condition, halted bool) Finding {
	more := ""
	if e.moreCSRs {
		more = "more than "
	}
	f := fail("O9", fmt.Sprintf("find out why they are not approved or not used, then delete them:\n%s\nat the hub: kubectl "+
		"delete csr -l %s=%s", e.agentLog(), clusterLabel, e.ClusterName),
		"there are %s%d requests for certificates: the agent makes no more", more, len(own)).
		with(differs("CSRs", fmt.Sprint(len(own)), fmt.Sprintf("less than %d", maxRequests)))
	if rotation.status == "False" {
		f = f.with(rotation.field(rotated, "True ClientCertificateUpdated"))
	}
	if !halted {
		f.Result = Warn
	}
	return f
}

// judgeRequest looks at the newest one: the agent has given the others up.
func (e *enrolment) judgeRequest(r request, settled bool) Finding {
	const signs = "approved, with a certificate"
	switch {
	case r.state == denied:
		return fail("O4", "kubectl delete csr "+pasted(r.name)+", at the hub; then, in the cluster: "+e.restart(),
			"the request for a certificate was denied, and the agent waits for it as long as it is there").with(r.field(signs))
	case r.state == failed:
		return fail("O5", "use a hub that issues client certificates (kubernetes.io/kube-apiserver-client), or register with "+
			"IAM roles (awsirsa) at EKS",
			"the hub cannot sign the request for a certificate").with(r.field(signs))
	case r.state == pending:
		f := fail("O3", "if that user is the agent's: clusteradm accept --clusters "+e.ClusterName+", or, at the hub: kubectl "+
			"certificate approve "+pasted(r.name),
			"the request for a certificate waits for approval").with(r.field(signs))
		if settled { // the old certificate is good for a while
			f.Result = Warn
		}
		return f
	case !r.issued:
		return fail("O6", "at the hub: kube-controller-manager needs the controller csrsigning and --cluster-signing-cert-file; "+
			"EKS does not sign such requests, see awsirsa",
			"the request is approved, but nobody has signed it").
			with(differs("CSR "+shown(r.name), "approved, no certificate", signs))
	case e.cluster == nil:
		return fail("O7", e.rejoin(), "the request is approved, but there is no ManagedCluster: what is left of an older "+
			"enrolment is in the way").with(r.field("with a ManagedCluster"))
	case e.joinedAnew(r):
		return fail("O8", fmt.Sprintf("kubectl delete managedcluster %s, at the hub, which also removes what the hub has "+
			"deployed there;\n", e.ClusterName)+e.rejoin(),
			"somebody has joined again under the name of a cluster that had joined before: its old objects are in the way").
			with(r.field("from " + e.agentUser() + "…"))
	}
	return pass("the newest request is approved and signed").with(same("CSR", r.name))
}

func (e *enrolment) rejoin() string {
	return "in the cluster: kubectl delete secret -n " + e.agentNamespace +
		" hub-kubeconfig-secret bootstrap-hub-kubeconfig; then join again: clusteradm join"
}

func (e *enrolment) agentUser() string {
	return "system:open-cluster-management:" + e.ClusterName + ":"
}

// joinedAnew knows a cluster that had joined by the user of its request: it would have renewed as itself.
func (e *enrolment) joinedAnew(r request) bool {
	joined, _ := e.condition("ManagedClusterJoined")
	return joined.status == "True" && !e.isTrue("ManagedClusterConditionAvailable") &&
		!strings.HasPrefix(r.user, e.agentUser()) && r.created.After(joined.changed)
}
