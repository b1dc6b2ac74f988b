package registration

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/kube"
	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/ocm/addon/v1alpha1"
	"github.com/workloadid/workloadid/registration/token"
)

// addOn is one of either version of the API.
type addOn struct {
	name string
	addon.Status
}

// listAddOns reads the version that the hub stores, since items of the other one may read back empty.
func (e *examination) listAddOns(ctx context.Context) (all []addOn, err error) {
	const kind = "ManagedClusterAddOn"
	older, _, err := kube.List[v1alpha1.ManagedClusterAddOn](ctx, e.Hub, v1alpha1.GroupVersion.WithKind(kind), client.InNamespace(e.ClusterName))
	for i := range older {
		all = append(all, addOn{older[i].Name, addon.StatusOf(&older[i])})
	}
	if !kube.Absent(err) {
		return all, err
	}
	newer, _, err := kube.List[addon.ManagedClusterAddOn](ctx, e.Hub, addon.GroupVersion.WithKind(kind), client.InNamespace(e.ClusterName))
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
		return kube.Unread("the add-ons", err, "kubectl get managedclusteraddons -n "+e.name()+" -o yaml")
	case len(all) == 0:
		return doctor.Skipped("The cluster has no add-ons.")
	}
	var broken []doctor.Finding
	for i := range all {
		if f := e.judgeAddOn(&all[i]); f.Result != doctor.Pass {
			broken = append(broken, f)
		}
	}
	if len(broken) == 0 {
		return e.pendingAddOns(len(all))
	}
	first := broken[0]
	for _, f := range broken[1:min(len(broken), maxRequests)] {
		first = first.Detail("also", f.Message+" ["+f.Class+"]")
	}
	return first
}

// pendingAddOns finds a request of an add-on that is neither approved nor denied.
func (e *examination) pendingAddOns(n int) doctor.Finding {
	i := slices.IndexFunc(e.requests, func(r certificateRequest) bool { return r.Labels[addon.NameLabel] != "" && decision(&r).Type == "" })
	if i < 0 {
		return doctor.Passed("Nothing is wrong with the credentials of %s.", kube.Count(n, "add-on"))
	}
	r := &e.requests[i]
	f := doctor.Failed("O29", doctor.Do("At the hub, approve it if the user is the agent's:", "kubectl certificate approve "+shell.Word(r.Name, "NAME")),
		"The certificate request of add-on %.63s is pending.", r.Labels[addon.NameLabel])
	if !e.byAgent(r) {
		f = foreign(r)
	}
	return describe(f.As(doctor.Warn), r, "Approved")
}

// judgeAddOn follows the order in which an add-on gets its credential.
func (e *examination) judgeAddOn(a *addOn) doctor.Finding {
	get := func(kind string) metav1.Condition { return conditionOf(a.Conditions, kind) }
	isToken := slices.ContainsFunc(a.Items, func(r ocm.Registration) bool { return r.Driver == ocm.DriverToken })
	ready, accepted, rotated := get(addon.ConditionTokenInfrastructureReady), get(agent.ConditionRegistrationAccepted), get(ocm.ConditionCertificateRotated)
	tokens := get(addon.ConditionTokenRefreshed)
	if tokens.Status == "" {
		tokens = get(addon.ConditionTokenRefreshedOCM)
	}
	isFalse := func(c metav1.Condition) bool { return c.Status == metav1.ConditionFalse }
	name := fmt.Sprintf("%.63s", a.name)
	switch {
	case isFalse(accepted):
		return e.addOnFault("O43", "The agent refuses to register the add-on "+name, a, accepted)
	case isFalse(ready):
		return e.addOnFault("O28", "The hub cannot set up the token of the add-on "+name, a, ready)
	case isToken && ready.Status == "":
		f := doctor.Failed("O44", doctor.Do("Run the hub with tokens for add-ons, or use csr:", "wid hub init --addon-registration-auth=csr,token"),
			"The add-on %s uses a token, but no controller of the hub provides tokens.", name)
		return observed(f, ready, "True "+token.ReasonReady)
	case isFalse(tokens):
		return e.addOnFault("O45", "The agent gets no token for the add-on "+name, a, tokens)
	case !isToken && isFalse(rotated):
		return e.addOnFault("O46", "The agent gets no certificate for the add-on "+name, a, rotated)
	}
	return doctor.Passed("Nothing is wrong with the add-on %s.", name)
}

// addOnFault quotes the message of the condition, since agents and hubs say there what to correct.
func (e *examination) addOnFault(class, message string, a *addOn, c metav1.Condition) doctor.Finding {
	name := shell.Word(a.name, "ADDON")
	remedy := doctor.Do("Correct what the condition says. To read the whole of it at the hub:", fmt.Sprintf("kubectl get managedclusteraddon -n %s %s -o yaml", e.name(), name))
	switch c.Reason {
	case token.ReasonClusterNotAccepted:
		remedy = doctor.Do("At the hub, accept the cluster:", e.accept())
	case token.ReasonForbidden:
		remedy = doctor.Do("Apply the hub's manifests for tokens again:", "wid hub init --addon-registration-auth=csr,token --apply")
	case "ClientCertificateNotApproved":
		remedy = doctor.Do("At the hub, approve the request, or run the approver of the signer:", "kubectl get csr -l "+addon.NameLabel+"="+name)
	case "ClientCertificateDenied":
		remedy = doctor.Do("At the hub, delete the request, so that the agent asks again:", "kubectl delete csr -l "+addon.NameLabel+"="+name)
	}
	return quoted(doctor.Failed(class, remedy, "%s", message), c)
}
