package registration

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/addonapi/v1alpha1"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/kube"
	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

type certificateRequest = certificatesv1.CertificateSigningRequest

// listRequests returns the requests of the agent and its add-ons, the newest first.
func (e *examination) listRequests(ctx context.Context) ([]certificateRequest, error) {
	list, err := kube.List[certificateRequest](ctx, e.Hub, certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"),
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

// maxRequests is where the agent of Open Cluster Management stops making more.
const maxRequests = 10

func (e *examination) checkRequests(ctx context.Context) doctor.Finding {
	own, works := e.ownRequests(), e.works(ctx)
	switch {
	case e.requestsErr != nil:
		return kube.Unread("the requests for certificates", e.requestsErr, e.hub.Command("kubectl get csr -l "+ocm.ClusterNameLabel+"="+e.name()))
	case len(own) == 0:
		return doctor.Skipped("There is no request for a certificate; the hub forgets old ones.")
	case len(own) >= maxRequests:
		f := e.fault("TooManyRequests", "There are %d requests for certificates; the agent makes no more.", len(own))
		if works && e.condition(regname.ConditionCertificateRotated).Status != metav1.ConditionFalse {
			f.Result = doctor.Warn
		}
		return f
	}
	if works { // a denied request of another agent stops nothing
		own = slices.DeleteFunc(own, func(r certificateRequest) bool {
			return decision(&r).Type == certificatesv1.CertificateDenied && !e.isAgent(&r)
		})
	}
	if len(own) == 0 {
		return doctor.Passed("The hub denied the requests of others.")
	}
	return e.checkRequest(ctx, &own[max(0, slices.IndexFunc(own, e.fromAgent))])
}

func (e *examination) isAgent(r *certificateRequest) bool {
	return strings.HasPrefix(r.Spec.Username, registration.AgentUser(e.ClusterName, ""))
}

// fromAgent reports whether the user of the request is the agent, or an identity that agents bootstrap with. Every user who may
// create requests can choose the label.
func (e *examination) fromAgent(r certificateRequest) bool {
	return e.isAgent(&r) || strings.HasPrefix(r.Spec.Username, "system:bootstrap:") ||
		slices.Contains(r.Spec.Groups, registration.BootstrapGroup) || r.Spec.Username == regname.BootstrapUser
}

// checkRequest checks the agent's newest request, since the agent has given up the others. Add-ons have one too.
func (e *examination) checkRequest(ctx context.Context, r *certificateRequest) doctor.Finding {
	o, d := object{request: r.Name}, decision(r)
	var f doctor.Finding
	switch {
	case d.Type == certificatesv1.CertificateDenied, d.Type == certificatesv1.CertificateFailed:
		f = said(e.faultOf(o, "ClientCertificate"+string(d.Type), "The hub says of the request for a certificate: %s.", d.Type), "", d.Message)
	case d.Type == "":
		if f = e.pending(ctx, r); f.Observed != nil {
			return f
		}
	case len(r.Status.Certificate) == 0:
		f = e.faultOf(o, "ClientCertificateNotSigned", "The request is approved, but not signed.")
	default:
		return doctor.Passed("The newest request is approved and signed.")
	}
	return f.Compare("request", fmt.Sprintf("%s, by user %.300s", cmp.Or(string(d.Type), "Pending"), r.Spec.Username), "expected", "Approved, with a certificate")
}

// pending goes by the hub's own Event. Hubs of Open Cluster Management record none. An agent that works has time, and must not lose its
// credential to the next bootstrap user.
func (e *examination) pending(ctx context.Context, r *certificateRequest) doctor.Finding {
	o := object{request: r.Name, addOn: r.Labels[addon.NameLabel]}
	event := newestEvent(ctx, e.Hub, metav1.NamespaceDefault, r.UID, regname.ActionApprove)
	otherwise, message := "RequestPending", "The request for a certificate is pending."
	if o.addOn != "" {
		otherwise, message = "ClientCertificateNotApproved", fmt.Sprintf("The certificate request of add-on %.63s is pending.", o.addOn)
	}
	switch {
	case !e.fromAgent(*r):
		otherwise, message = "UnknownRequester", "The pending request for a certificate is not the agent's."
	case event.Reason == "UnknownRequester": // a hub without bootstrap users leaves all first requests to a person
		event.Reason = otherwise
	}
	reason, works := e.known(event.Reason, otherwise), e.works(ctx)
	if o.addOn == "" && (slices.Contains(strings.Fields(replacingReasons), reason) || works && e.fromAgent(*r) && !e.isAgent(r)) {
		return e.replacement(r, reason, works)
	}
	f := said(e.faultOf(o, reason, "%s", message), event.Reason, event.Message)
	if works {
		f.Result = doctor.Warn
	}
	return f
}

// replacement quotes no Event, which would advise to approve the request.
func (e *examination) replacement(r *certificateRequest, reason string, works bool) doctor.Finding {
	f := doctor.Failed(reason, e.replacing(object{request: r.Name}, works), "The pending request for a certificate may replace the agent, so the hub leaves it to a person.")
	if works {
		f.Result, f.Message = doctor.Warn, "The agent works, and another request for a certificate is pending. If it is approved, the running agent can no longer renew its certificate."
	}
	return f.Compare("request", fmt.Sprintf("%.253s, by user %.300s", r.Name, r.Spec.Username), "expected", "none but from the agent")
}

// newestEvent returns the newest Event of an action, the zero value if there is none, or the user may not list Events. Without a UID it is
// one of any object.
func newestEvent(ctx context.Context, c client.Reader, namespace string, about types.UID, action string) (newest corev1.Event) {
	opts := []client.ListOption{client.InNamespace(namespace)}
	if about != "" {
		opts = append(opts, client.MatchingFields{"involvedObject.uid": string(about)})
	}
	events, _ := kube.List[corev1.Event](ctx, c, corev1.SchemeGroupVersion.WithKind("Event"), opts...) //nolint:errcheck // they only explain
	for _, v := range events {
		if v.Action == action && (about == "" || v.InvolvedObject.UID == about) && !seen(v).Before(seen(newest)) {
			newest = v
		}
	}
	return newest
}

func seen(v corev1.Event) time.Time {
	if v.Series != nil {
		return v.Series.LastObservedTime.Time
	}
	return v.EventTime.Time
}

// quoteAgent adds the newest Event of the agent.
func (e *examination) quoteAgent(ctx context.Context, f doctor.Finding) doctor.Finding {
	if e.Spoke == nil {
		return f
	}
	event := newestEvent(ctx, e.Spoke, e.agentNamespace, "", "Register")
	if e.accepted && event.Reason == regname.ReasonWaiting { // it is from before the acceptance
		return f
	}
	return said(f, event.Reason, event.Message)
}

// addOn is one of either version of the API.
type addOn struct {
	name string
	addon.Status
}

// listAddOns reads the version that the hub stores, since items of the other one may read back empty.
func (e *examination) listAddOns(ctx context.Context) (all []addOn, err error) {
	const kind = "ManagedClusterAddOn"
	older, err := kube.List[v1alpha1.ManagedClusterAddOn](ctx, e.Hub, v1alpha1.GroupVersion.WithKind(kind), client.InNamespace(e.ClusterName))
	for i := range older {
		all = append(all, addOn{older[i].Name, addon.StatusOf(&older[i])})
	}
	if !kube.Absent(err) {
		return all, err
	}
	newer, err := kube.List[addon.ManagedClusterAddOn](ctx, e.Hub, addon.GroupVersion.WithKind(kind), client.InNamespace(e.ClusterName))
	for i := range newer {
		all = append(all, addOn{newer[i].Name, addon.StatusOf(&newer[i])})
	}
	return all, err
}

func (e *examination) checkAddOns(ctx context.Context) doctor.Finding {
	all, err := e.listAddOns(ctx)
	switch {
	case kube.Absent(err):
		return doctor.Skipped("The hub has no add-ons.")
	case err != nil:
		return kube.Unread("the add-ons", err, e.hub.Command("kubectl get managedclusteraddons -n "+e.name()+" -o yaml"))
	case len(all) == 0:
		return doctor.Skipped("The cluster has no add-ons.")
	}
	for i := range all {
		if f := e.checkAddOn(&all[i]); f.Result != doctor.Pass {
			return f
		}
	}
	i := slices.IndexFunc(e.requests, func(r certificateRequest) bool { return r.Labels[addon.NameLabel] != "" && decision(&r).Type == "" })
	if i < 0 {
		return doctor.Passed("Nothing is wrong with the credentials of add-ons.")
	}
	return e.checkRequest(ctx, &e.requests[i]).As(doctor.Warn)
}

// checkAddOn follows the order in which an add-on gets its credential.
func (e *examination) checkAddOn(a *addOn) doctor.Finding {
	get := func(kind string) metav1.Condition { return conditionOf(a.Conditions, kind) }
	isToken := slices.ContainsFunc(a.Items, func(r ocm.Registration) bool { return r.Driver == registration.AuthTypeToken })
	ready, tokens, rotated := get(addon.ConditionTokenInfrastructureReady), get(regname.ConditionTokenRefreshed), get(regname.ConditionCertificateRotated)
	if tokens.Status == "" {
		tokens = get(regname.ConditionTokenRefreshedOCM)
	}
	if isToken {
		rotated = metav1.Condition{}
	}
	o := object{addOn: a.name, request: e.addOnRequest(a.name)}
	if isToken && ready.Status == "" {
		return e.faultOf(o, "TokenInfrastructureNotReady", "The add-on %.63s uses a token, but no controller of the hub provides tokens.", a.name)
	}
	for _, c := range []struct {
		metav1.Condition

		otherwise string
	}{{get(regname.ConditionRegistrationAccepted), "AddOnRefused"}, {ready, "TokenInfrastructureNotReady"}, {tokens, "TokenRequestFailed"}, {rotated, "ClientCertificateUpdateFailed"}} {
		if c.Status == metav1.ConditionFalse {
			return e.refused(o, c.Condition, c.otherwise, "The condition %s of the add-on %.63s is False.", c.Type, a.name)
		}
	}
	return doctor.Passed("Nothing is wrong with the add-on %.63s.", a.name)
}
