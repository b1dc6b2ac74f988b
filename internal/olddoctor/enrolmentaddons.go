package doctor

import (
	"context"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

func (e *enrolment) checkAddons(ctx context.Context) Finding {
	if f, none := e.noCluster(); none {
		return f
	}
	const kind = "TokenInfrastructureReady"
	items, _, err := listObjects(ctx, e.Hub, addonAPI, "ManagedClusterAddOn", client.InNamespace(e.ClusterName))
	if absentKind(err) {
		items, _, err = listObjects(ctx, e.Hub, addonOldAPI, "ManagedClusterAddOn", client.InNamespace(e.ClusterName))
	}
	switch {
	case absentKind(err):
		return skip("the hub knows no add-ons")
	case err != nil:
		return unread("the add-ons", err, "grant list on managedclusteraddons.addon.open-cluster-management.io in "+
			"namespace "+e.ClusterName)
	case len(items) == 0:
		return skip("the cluster has no add-ons")
	}
	var broken []string
	var fields []Field
	for i := range items {
		if c, found := conditionOf(&items[i], kind); found && c.status == "False" {
			broken = append(broken, shown(items[i].GetName()))
			fields = append(fields, c.field(shown(items[i].GetName())+" "+kind, "True"))
		}
	}
	const most = 5
	if len(broken) > 0 {
		return fail("O28", "give the hub's add-on manager create, get, update and patch on serviceaccounts, roles and "+
			"rolebindings in namespace "+e.ClusterName+
			":\nkubectl logs -n open-cluster-management-hub deploy/cluster-manager-addon-manager-controller",
			"the hub cannot set up the token of %s: %s", count(len(broken), "add-on", "add-ons"),
			strings.Join(broken[:min(most, len(broken))], ", ")).
			with(fields[:min(most, len(fields))]...)
	}
	for _, r := range e.requests {
		if r.addon != "" && r.state == pending {
			return Finding{Result: Warn, Class: "O29", Remedy: "if that user is the agent's, at the hub: kubectl certificate " +
				"approve " + pasted(r.name),
				Message: "the request of the add-on " + shown(r.addon) +
					" for a certificate waits for approval"}.with(r.field("approved"))
		}
	}
	return pass("nothing is wrong with the credentials of %s", count(len(items), "add-on", "add-ons"))
}
