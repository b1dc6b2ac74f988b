package registration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/kube"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
)

const hubPods = "kubectl get pods -n open-cluster-management-hub"

// accept returns the command that also approves the agent's request.
func (e *examination) accept() string { return "wid hub accept --clusters " + e.name() }

func (e *examination) readLog(text string) doctor.Remedy { return doctor.Do(text, e.logs()) }

func (e *examination) checkHub(ctx context.Context) doctor.Finding {
	if e.Hub == nil {
		return doctor.Unclear(doctor.Do("Add the kubeconfig of the hub."), "The hub was not examined.")
	}
	e.requests, e.requestsErr = e.listRequests(ctx)
	cluster, err := e.readCluster(ctx, e.Hub)
	switch {
	case apierrors.IsNotFound(err) && len(e.ownRequests()) > 0:
		return doctor.Failed("O7", e.rejoin(), "The agent asks for a certificate, but there is no ManagedCluster %s.", e.ClusterName)
	case apierrors.IsNotFound(err):
		f := doctor.Failed("O2", e.readLog("In the cluster, read the agent's log:"), "The agent has never reached the hub: there is no ManagedCluster %s.", e.ClusterName)
		f.Causes = []string{"address or CA of the hub in the Secret bootstrap-hub-kubeconfig do not work inside the cluster",
			"the agent does not run, or registers under another name", "its bootstrap credential has expired"}
		return f
	case err != nil:
		return e.unreadCluster(err)
	}
	e.cluster = cluster
	if cluster.DeletionTimestamp != nil {
		return doctor.Failed("O38", doctor.Do("At the hub, see what its finalizers wait for:", "kubectl get managedcluster "+e.name()+" -o yaml"),
			"The ManagedCluster %s is being deleted.", e.ClusterName).
			Compare("finalizers", fmt.Sprintf("%.300s", strings.Join(cluster.Finalizers, ", ")), "expected", "none")
	}
	return doctor.Passed("The hub has the ManagedCluster %s since %s.", e.ClusterName, kube.Stamp(cluster.CreationTimestamp.Time))
}

func (e *examination) unreadCluster(err error) doctor.Finding {
	return kube.Unread("the ManagedCluster at the hub", err, "kubectl get managedcluster "+e.name()+" -o yaml")
}

func (e *examination) checkAccepted(context.Context) doctor.Finding {
	const want = "True " + ocm.ReasonHubAccepted
	c, accepts := e.condition(ocm.ConditionHubAccepted), e.cluster.Spec.HubAcceptsClient
	isFalse, denied := c.Status == metav1.ConditionFalse, c.Reason == ocm.ReasonHubDenied
	var f doctor.Finding
	switch {
	case isFalse && denied && !accepts:
		f = doctor.Failed("O12", doctor.Do("At the hub, accept it if it is wanted:", e.accept()), "The hub denies the cluster.")
	case !accepts && (!isFalse || c.Reason == hub.ReasonWaiting):
		return doctor.Failed("O10", doctor.Do("At the hub, accept the cluster:", e.accept()), "The hub has not accepted the cluster yet.").
			Compare("spec.hubAcceptsClient", "false", "expected", "true")
	case c.Status == "" || denied:
		f = doctor.Failed("O11", doctor.Do("At the hub, see why its controller does not run:", hubPods), "The cluster is accepted, but the hub has not acted on it.")
	case isFalse:
		return quoted(doctor.Failed("O13", doctor.Do("Correct what the hub says, then see whether it tries again:", "kubectl get managedcluster "+e.name()+" -o yaml"),
			"The hub does not grant the cluster its rights"), c)
	case c.Status != metav1.ConditionTrue:
		f = doctor.Unclear(doctor.Do("At the hub, see why its controller does not run:", hubPods), "The hub does not tell whether it accepts the cluster.")
	case c.Reason == hub.ReasonClaimChanged:
		f = doctor.Failed("O42", doctor.Do("Undo the change, or deny the cluster and accept it again:", "wid hub deny --clusters "+e.name(), "wid hub accept --clusters "+e.name()),
			"The cluster claims another AWS role than the one it was accepted with.").As(doctor.Warn)
	default:
		return doctor.Passed("The hub accepts the cluster.")
	}
	return observed(f, c, want)
}

// checkRBAC reads the objects without which each request of the agent is refused.
func (e *examination) checkRBAC(ctx context.Context) doctor.Finding {
	name := registration.ClusterRoleName(e.ClusterName)
	show := "kubectl get clusterrole,clusterrolebinding " + name
	missing := func(what string) doctor.Finding {
		return doctor.Failed("O41", doctor.Do("At the hub, have its controller create it again: see why it does not run.", hubPods), "%s is missing on the hub.", what)
	}
	var role rbacv1.ClusterRole
	var binding rbacv1.ClusterRoleBinding
	for _, o := range []struct {
		kind string
		into any
	}{{"ClusterRole", &role}, {"ClusterRoleBinding", &binding}} {
		err := kube.Get(ctx, e.Hub, rbacv1.SchemeGroupVersion.WithKind(o.kind), client.ObjectKey{Name: name}, o.into)
		if apierrors.IsNotFound(err) {
			return missing("The " + o.kind + " of the accepted cluster")
		}
		if err != nil {
			return kube.Unread("the cluster's RBAC", err, show)
		}
	}
	e.authType = role.Annotations[registration.AuthTypeAnnotation]
	groups := registration.ClusterGroups(e.ClusterName)
	if !slices.ContainsFunc(binding.Subjects, func(s rbacv1.Subject) bool { return s.Kind == rbacv1.GroupKind && slices.Contains(groups, s.Name) }) {
		return missing("The group " + groups[0] + " in the ClusterRoleBinding")
	}
	return doctor.Passed("The cluster has its RBAC on the hub.")
}

func (e *examination) checkJoined(context.Context) doctor.Finding {
	if c := e.condition(ocm.ConditionJoined); c.Status != metav1.ConditionTrue {
		return observed(doctor.Failed("O14", e.readLog("In the cluster, read the agent's log:"), "The agent has not joined: it cannot use its credential for the hub yet."),
			c, "True "+agent.ReasonJoined)
	}
	if c := e.condition(ocm.ConditionCertificateRotated); c.Status == metav1.ConditionFalse {
		return observed(doctor.Failed("O36", e.readLog("In the cluster, read the agent's log:"), "The agent has joined, but cannot renew its certificate."),
			c, "True ClientCertificateUpdated")
	}
	return doctor.Passed("The agent has joined.")
}

func (e *examination) checkClocks(context.Context) doctor.Finding {
	switch c := e.condition(ocm.ConditionClockSynced); c.Status {
	case "":
		return doctor.Skipped("The hub has not compared the clocks.")
	case metav1.ConditionFalse:
		return observed(doctor.Failed("O18", doctor.Do("Synchronize the clocks of the nodes on both sides:", "sudo timedatectl set-ntp true"),
			"The clocks of hub and cluster differ."), c, "True ManagedClusterClockSynced")
	}
	return doctor.Passed("The clocks of hub and cluster agree.")
}

// Of the Lease in the cluster's namespace on the hub.
const (
	leaseGrace      = 5 // durations that the hub waits
	defaultDuration = time.Minute
	maxDuration     = 24 * time.Hour // the cluster may write any duration
)

func (e *examination) checkLease(ctx context.Context) doctor.Finding {
	c := e.condition(ocm.ConditionAvailable)
	const want = "True " + agent.ReasonAvailable
	renewed, grace := e.lease(ctx)
	age := e.now().Sub(renewed)
	stopped := doctor.Failed("O15", doctor.Do("In the cluster, read the agent's log, then restart it:", e.logs(), "kubectl rollout restart -n "+e.agentNamespace+" deploy/"+e.deployment),
		"The agent has stopped renewing its Lease.")
	switch {
	case !renewed.IsZero() && age > grace:
		if c.Status == metav1.ConditionTrue && e.HubConfig == nil {
			stopped.Result = doctor.Warn // this machine's clock may be wrong
		}
		return stopped.Compare("renewed", kube.Stamp(renewed), "expected", "within the last "+grace.String())
	case c.Status == metav1.ConditionUnknown && c.Reason == hub.ReasonLeaseStopped:
		return observed(stopped, c, want)
	case c.Status == metav1.ConditionFalse:
		return observed(doctor.Failed("O16", doctor.Do("In the cluster, ask its API server:", "kubectl get --raw /readyz"),
			"The agent reports that the cluster is not available."), c, want)
	case c.Status != metav1.ConditionTrue:
		return observed(doctor.Failed("O17", e.readLog("In the cluster, read the agent's log:"), "The agent has not reported whether the cluster is available."), c, want).As(doctor.Warn)
	case renewed.IsZero(), age < -kube.MaxSkew: // the hub's condition may be old
		return doctor.Unclear(doctor.Do("At the hub, look at the Lease:", "kubectl get lease -n "+e.name()+" "+ocm.LeaseName+" -o yaml"),
			"The hub says that the cluster is available, but no Lease proves it: it is missing, unreadable or dated in the future.")
	}
	return doctor.Passed("The cluster has joined, and the hub says that it is available.")
}

// lease returns the zero time if the Lease cannot be read.
func (e *examination) lease(ctx context.Context) (renewed time.Time, grace time.Duration) {
	duration := time.Duration(e.cluster.Spec.LeaseDurationSeconds) * time.Second
	if duration <= 0 || duration > maxDuration {
		duration = defaultDuration
	}
	var lease coordinationv1.Lease
	err := kube.Get(ctx, e.Hub, coordinationv1.SchemeGroupVersion.WithKind("Lease"), client.ObjectKey{Namespace: e.ClusterName, Name: ocm.LeaseName}, &lease)
	if err == nil && lease.Spec.RenewTime != nil {
		renewed = lease.Spec.RenewTime.Time
	}
	return renewed, leaseGrace * duration
}
