package registration

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/kube"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/ocm/addon/v1alpha1"
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
		return kube.Unread("the add-ons", err, e.hub.command("kubectl get managedclusteraddons -n "+e.name()+" -o yaml"))
	case len(all) == 0:
		return doctor.Skipped("The cluster has no add-ons.")
	}
	e.readHubProgram(ctx)
	var broken []doctor.Finding
	for i := range all {
		if f := e.judgeAddOn(&all[i]); f.Result != doctor.Pass {
			broken = append(broken, f)
		}
	}
	if len(broken) == 0 {
		return e.pendingAddOns(ctx, len(all))
	}
	first := broken[0]
	for _, f := range broken[1:min(len(broken), maxRequests)] {
		first = first.Detail("also", f.Message+" ["+f.Class+"]")
	}
	return first
}

// pendingAddOns finds a request of an add-on that is neither approved nor denied.
func (e *examination) pendingAddOns(ctx context.Context, n int) doctor.Finding {
	i := slices.IndexFunc(e.requests, func(r certificateRequest) bool { return r.Labels[addon.NameLabel] != "" && decision(&r).Type == "" })
	if i < 0 {
		return doctor.Passed("Nothing is wrong with the credentials of %s.", kube.Count(n, "add-on"))
	}
	return e.judgeRequest(ctx, &e.requests[i]).As(doctor.Warn)
}

// judgeAddOn follows the order in which an add-on gets its credential.
func (e *examination) judgeAddOn(a *addOn) doctor.Finding {
	get := func(kind string) metav1.Condition { return conditionOf(a.Conditions, kind) }
	isToken := slices.ContainsFunc(a.Items, func(r ocm.Registration) bool { return r.Driver == ocm.DriverToken })
	ready, tokens, rotated := get(addon.ConditionTokenInfrastructureReady), get(addon.ConditionTokenRefreshed), get(ocm.ConditionCertificateRotated)
	if tokens.Status == "" {
		tokens = get(addon.ConditionTokenRefreshedOCM)
	}
	if isToken {
		rotated = metav1.Condition{}
	}
	o := object{addOn: a.name, request: e.addOnRequest(a.name)}
	for _, c := range []struct {
		metav1.Condition

		otherwise, message string
	}{
		{get(agent.ConditionRegistrationAccepted), "AddOnRefused", "The agent refuses to register the add-on %.63s."},
		{ready, "TokenInfrastructureNotReady", "The hub cannot set up the token of the add-on %.63s."},
		{tokens, "TokenRequestFailed", "The agent gets no token for the add-on %.63s."},
		{rotated, "ClientCertificateUpdateFailed", "The agent gets no certificate for the add-on %.63s."},
	} {
		switch {
		case c.Status == metav1.ConditionFalse:
			return e.refused(o, c.Condition, c.otherwise, c.message, a.name)
		case isToken && c.Type == ready.Type && c.Status == "":
			return e.faultOf(o, c.otherwise, "The add-on %.63s uses a token, but no controller of the hub provides tokens.", a.name)
		}
	}
	return doctor.Passed("Nothing is wrong with the add-on %.63s.", a.name)
}
