package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const noHub = "pass a kubeconfig of the hub"

func (e *enrolment) agentLog() string {
	if e.klusterlet != nil {
		agent := "klusterlet-registration-agent"
		if strings.HasPrefix(e.mode(), "Singleton") {
			agent = "klusterlet-agent"
		}
		return fmt.Sprintf("in the cluster: kubectl logs -n %s deploy/%s", e.agentNamespace, agent)
	}
	return fmt.Sprintf("in the cluster: kubectl logs -n %s deploy/klusterlet-registration-agent (deploy/klusterlet-agent in "+
		"singleton mode)", e.agentNamespace)
}

func (e *enrolment) restart() string {
	return "kubectl rollout restart -n " + e.agentNamespace + " deploy"
}

func (e *enrolment) accept() string {
	if e.misnamed() {
		return seeAgent
	}
	return fmt.Sprintf("clusteradm accept --clusters %[1]s, or, at the hub: kubectl patch managedcluster %[1]s --type merge "+
		"-p '{\"spec\":{\"hubAcceptsClient\":true}}'", e.ClusterName)
}

func (e *enrolment) checkHub(ctx context.Context) Finding {
	switch {
	case e.ClusterName == "":
		return fail("O2", "name the ManagedCluster", "no cluster was named")
	case !validName(e.ClusterName):
		return fail("O2", "correct the name: lower-case letters, digits and hyphens", "the cluster's name is malformed: %.100q",
			e.ClusterName)
	case e.Hub == nil:
		return unknown("there is no access to the hub", noHub)
	case absentKind(e.clusterErr):
		return e.noHubThere()
	case apierrors.IsNotFound(e.clusterErr):
		return e.neverArrived(ctx)
	case e.clusterErr != nil:
		return unread("the ManagedCluster", e.clusterErr, "grant get on managedclusters."+strings.TrimSuffix(clusterAPI, "/v1"))
	case e.cluster.GetDeletionTimestamp() != nil:
		return fail("O38", fmt.Sprintf("see what its finalizers wait for: kubectl get managedcluster %s -o yaml",
			e.ClusterName), "the ManagedCluster is being deleted").
			with(differs("finalizers", strings.Join(e.cluster.GetFinalizers(), ", "), "none left"))
	}
	return pass("the hub has the ManagedCluster since %s", stamp(e.cluster.GetCreationTimestamp().Time))
}

func (e *enrolment) neverArrived(ctx context.Context) Finding {
	missing := differs("ManagedCluster", "not found", e.ClusterName)
	switch {
	case e.csrErr != nil:
		return fail("O2", e.agentLog(), "there is no ManagedCluster; whether the agent has asked for a certificate could not be "+
			"seen").with(missing)
	case len(e.requests) > 0: // they say more
		return Finding{Result: Warn, Class: "O7", Remedy: "see enrolment-csr",
			Message: "there is no ManagedCluster, but there are requests for certificates"}.with(missing)
	case e.checkKlusterlet(ctx).Result == Fail: // the other side knows why
		return Finding{Result: Warn, Class: "O2", Remedy: "see enrolment-agent",
			Message: "the agent has never reached the hub"}.with(missing)
	}
	f := fail("O2", e.agentLog(), "there is neither a ManagedCluster nor a request for a certificate: the agent has never "+
		"reached the hub")
	f.Causes = []string{"the hub's address or certificate authority in the cluster's bootstrap-hub-kubeconfig does not work " +
		"there (kind needs --force-internal-endpoint-lookup)",
		"the agent does not run", "it registers under another name",
		"its credential may not create ManagedClusters and CSRs: its token has expired"}
	return f.with(missing)
}

func (e *enrolment) noCluster() (Finding, bool) {
	switch {
	case e.Hub == nil:
		return unknown("there is no access to the hub", noHub), true
	case e.cluster == nil:
		return skip("there is no ManagedCluster to look at, see enrolment-hub"), true
	}
	return Finding{}, false
}

func (e *enrolment) checkAccepted(ctx context.Context) Finding {
	if f, none := e.noCluster(); none {
		return f
	}
	const kind, want = "HubAcceptedManagedCluster", "True HubClusterAdminAccepted"
	c, found := e.condition(kind)
	accepts, _, _ := unstructured.NestedBool(e.cluster.Object, "spec", "hubAcceptsClient")
	spec := differs("spec.hubAcceptsClient", fmt.Sprint(accepts), "true")
	controllers := "at the hub: kubectl get pods -n open-cluster-management-hub; kubectl logs -n open-cluster-management-hub " +
		"deploy/cluster-manager-registration-controller"
	switch {
	case c.status == "False" && c.reason == "HubClusterAdminDenied" && !accepts:
		return fail("O12", e.accept(), "an administrator of the hub has denied the cluster").with(c.field(kind, want), spec)
	case !accepts && e.notAsked(ctx):
		return Finding{Result: Warn, Class: "O10", Remedy: seeAgent,
			Message: "nobody has accepted the cluster at the hub; that alone does not help, since the agent has not asked for a certificate"}.
			with(spec)
	case !accepts:
		return fail("O10", e.accept(), "nobody has accepted the cluster at the hub").with(spec)
	case !found, c.status == "False" && c.reason == "HubClusterAdminDenied":
		return fail("O11", controllers, "the cluster is accepted in its spec, but the hub has not acted on that: its "+
			"registration controller does not run").
			with(c.field(kind, want))
	case c.status == "False":
		return fail("O13", "mend what the message says; the hub tries again by itself\n"+controllers,
			"the hub has accepted the cluster, but could not give it its rights").
			with(c.field(kind, want))
	case c.status != "True":
		return unknown("the hub does not say whether it accepts the cluster", controllers).with(c.field(kind, want))
	}
	return pass("the hub accepts the cluster").with(same(kind, c.status+" "+c.reason))
}

func (e *enrolment) checkJoined(context.Context) Finding {
	if f, none := e.noCluster(); none {
		return f
	}
	const kind = "ManagedClusterJoined"
	c, _ := e.condition(kind)
	if c.status != "True" {
		return fail("O14", "see enrolment-agent and enrolment-secret; "+e.agentLog(),
			"the agent has not joined: it cannot use its credential for the hub yet").
			with(c.field(kind, "True ManagedClusterJoined"))
	}
	if r, found := e.condition(rotated); found && r.status == "False" {
		return fail("O36", e.agentLog(), "the agent has joined, but cannot renew its certificate").
			with(r.field(rotated, "True ClientCertificateUpdated"))
	}
	return pass("the agent has joined").with(same(kind, c.reason))
}

const rotated = "ClusterCertificateRotated"

func (e *enrolment) checkClocks(context.Context) Finding {
	if f, none := e.noCluster(); none {
		return f
	}
	const kind = "ManagedClusterConditionClockSynced"
	c, found := e.condition(kind)
	switch {
	case !found:
		return skip("the hub has not compared the clocks yet")
	case c.status == "False":
		return fail("O18", "synchronize the clocks of the nodes on both sides (chronyc tracking, timedatectl)",
			"the clocks of hub and cluster differ").
			with(c.field(kind, "True ManagedClusterClockSynced"))
	}
	return pass("the clocks of hub and cluster agree")
}

// leaseName is that of the Lease in the cluster's namespace at the hub.
const leaseName = "managed-cluster-lease"

// leaseGrace is how many times a lease's duration the hub waits.
const leaseGrace = 5

func (e *enrolment) checkLease(ctx context.Context) Finding {
	if f, none := e.noCluster(); none {
		return f
	}
	const kind, want = "ManagedClusterConditionAvailable", "True ManagedClusterAvailable"
	c, found := e.condition(kind)
	renewed, fields, old := e.leaseAge(ctx)
	restart := e.agentLog() + "\nin the cluster: " + e.restart()
	stopped := fail("O15", restart, "the agent has stopped renewing its lease: it is down, its certificate has expired, or "+
		"the clocks differ").with(fields...)
	switch {
	case c.status == "Unknown" && c.reason == "ManagedClusterLeaseUpdateStopped":
		return stopped.with(c.field(kind, want))
	case old && !e.clock.known && c.status == "True":
		stopped.Result = Warn // the hub counts by its own clock
		stopped.Message = "the lease is old by this machine's clock, but the hub says that the cluster is available: one of the clocks is wrong, perhaps"
		return stopped
	case old:
		return stopped
	case c.status == "False":
		return fail("O16", "look at the cluster's API server: kubectl get --raw /readyz, there",
			"the agent reports that the cluster is not available").with(c.field(kind, want))
	case !found || c.status != "True":
		return Finding{Result: Warn, Class: "O17", Remedy: e.agentLog(),
			Message: "nobody has reported yet whether the cluster is available"}.with(c.field(kind, want))
	case renewed.IsZero():
		return pass("the hub says that the cluster is available; its lease could not be read")
	}
	return pass("the agent renews its lease, last at %s", stamp(renewed)).with(fields...)
}

func (e *enrolment) leaseAge(ctx context.Context) (renewed time.Time, fields []Field, old bool) {
	const defaultSeconds, most = 60, 24 * 60 * 60
	seconds, found, _ := unstructured.NestedInt64(e.cluster.Object, "spec", "leaseDurationSeconds")
	if !found || seconds <= 0 || seconds > most {
		seconds = defaultSeconds
	}
	lease := &coordinationv1.Lease{}
	err := readObject(ctx, e.Hub, "coordination.k8s.io/v1", "Lease",
		client.ObjectKey{Namespace: e.ClusterName, Name: leaseName}, lease)
	if err != nil || lease.Spec.RenewTime == nil {
		return renewed, nil, false
	}
	renewed = lease.Spec.RenewTime.Time
	grace := leaseGrace * time.Duration(seconds) * time.Second
	age := e.time().Sub(renewed)
	if old = age > grace; !old {
		return renewed, []Field{same("lease renewed", stamp(renewed))}, false
	}
	return renewed, []Field{differs("lease renewed", fmt.Sprintf("%s, %s ago", stamp(renewed), age.Round(time.Second)),
		fmt.Sprintf("less than %s ago", grace))}, true
}
