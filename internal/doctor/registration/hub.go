package registration

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/kube"
	"github.com/workloadid/workloadid/internal/irsaname"
	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/ocm"
)

const hubNamespace = "open-cluster-management-hub"

func (e *examination) checkHub(ctx context.Context) doctor.Finding {
	if e.Hub == nil {
		return doctor.Unclear(doctor.Do("Add the kubeconfig of the hub."), "The hub was not examined.")
	}
	e.requests, e.requestsErr = e.listRequests(ctx)
	own, ownErr := e.readSecret(ctx, ocm.HubKubeconfigSecret) // the check "secret" reports the error
	e.lost = e.Spoke != nil && client.IgnoreNotFound(ownErr) == nil && len(own["kubeconfig"]) == 0
	cluster, err := e.readCluster(ctx)
	switch {
	case apierrors.IsNotFound(err) && (len(e.ownRequests()) > 0 || len(own["kubeconfig"]) > 0):
		return e.fault("NoManagedCluster", "The agent has registered, but there is no ManagedCluster %s any more.", e.ClusterName)
	case apierrors.IsNotFound(err):
		f := e.fault("AgentNeverArrived", "The agent has never reached the hub: there is no ManagedCluster %s.", e.ClusterName)
		f.Causes = []string{"the hub's address or CA in bootstrap-hub-kubeconfig is wrong", "its bootstrap credential has expired, or it does not run"}
		return e.quoteAgent(ctx, f)
	case err != nil:
		return e.unreadCluster(err)
	}
	e.cluster = cluster
	if cluster.DeletionTimestamp != nil {
		c := e.condition(regname.ConditionDeleting)
		return said(e.fault("Deleting", "The ManagedCluster %s is being deleted.", e.ClusterName), c.Reason, c.Message).
			Compare("finalizers", fmt.Sprintf("%.300s", strings.Join(cluster.Finalizers, ", ")), "expected", "none")
	}
	return doctor.Passed("The hub has the ManagedCluster %s since %s.", e.ClusterName, kube.Stamp(cluster.CreationTimestamp.Time))
}

func (e *examination) unreadCluster(err error) doctor.Finding {
	return kube.Unread("the ManagedCluster at the hub", err, e.hub.Command("kubectl get managedcluster "+e.name()+" -o yaml"))
}

func (e *examination) checkAccepted(context.Context) doctor.Finding {
	c, accepts := e.condition(ocm.ConditionHubAccepted), e.cluster.Spec.HubAcceptsClient
	isFalse, denied := c.Status == metav1.ConditionFalse, c.Status == metav1.ConditionFalse && c.Reason == ocm.ReasonHubDenied
	switch {
	case !accepts && c.Status == metav1.ConditionTrue:
		return e.fault("HubNotActing", "The cluster is denied, but the hub has not acted on it: the agent still has access.")
	case !accepts && denied:
		return e.fault(ocm.ReasonHubDenied, "The hub denies the cluster.")
	case !accepts && (!isFalse || c.Reason == regname.ReasonWaiting):
		return e.fault("NotAccepted", "The hub has not accepted the cluster yet.")
	case denied, c.Status != metav1.ConditionTrue && !isFalse:
		return e.fault("HubNotActing", "The cluster is accepted, but the hub has not acted on it.")
	case isFalse:
		return e.refused(object{}, c, regname.ReasonGrantFailed, "The hub does not grant the cluster its rights.")
	case c.Reason == regname.ReasonClaimChanged:
		return e.refused(object{}, c, c.Reason, "The cluster claims another AWS role than the one it was accepted with.").As(doctor.Warn)
	}
	e.accepted = true
	return doctor.Passed("The hub accepts the cluster.")
}

// checkJoined quotes the conditions of an agent that arrived, but cannot work.
func (e *examination) checkJoined(ctx context.Context) doctor.Finding {
	switch clocks, rotated := e.condition(regname.ConditionClockSynced), e.condition(regname.ConditionCertificateRotated); {
	case clocks.Status == metav1.ConditionFalse:
		return said(e.fault("ClockSkew", "The clocks of hub and cluster differ."), "", clocks.Message)
	case e.condition(ocm.ConditionJoined).Status != metav1.ConditionTrue:
		return e.quoteAgent(ctx, e.fault("NotJoined", "The agent has not joined: it cannot use its credential for the hub yet."))
	case rotated.Status == metav1.ConditionFalse:
		return said(e.fault("ClientCertificateUpdateFailed", "The agent has joined, but cannot renew its certificate."), rotated.Reason, rotated.Message)
	}
	return doctor.Passed("The agent has joined.")
}

// leaseGrace is how many durations the hub waits.
const leaseGrace = 5

// checkLease believes the hub's condition. Its controller may not run, or the clock of this machine may be wrong: that is a warning.
func (e *examination) checkLease(ctx context.Context) doctor.Finding {
	c := e.condition(ocm.ConditionAvailable)
	renewed, grace := e.lease(ctx)
	switch {
	case c.Status == metav1.ConditionFalse:
		return e.refused(object{}, c, "ManagedClusterKubeAPIServerUnavailable", "The agent reports that the cluster is not available.")
	case c.Status == metav1.ConditionUnknown:
		return e.fault(regname.ReasonLeaseStopped, "The agent has stopped renewing its Lease.")
	case c.Status != metav1.ConditionTrue:
		return e.fault("NotJoined", "The agent has not reported whether the cluster is available.").As(doctor.Warn)
	case time.Since(renewed).Abs() > grace:
		return e.fault(regname.ReasonLeaseStopped, "The hub says that the cluster is available, but the Lease is missing, unreadable or old, or a clock is wrong.").As(doctor.Warn).
			Compare("renewed", kube.Stamp(renewed), "now", kube.Stamp(time.Now()))
	}
	return doctor.Passed("The cluster has joined, and the hub says that it is available.")
}

// works reports whether an agent runs and has a credential. A Lease outlives the credential by minutes.
func (e *examination) works(ctx context.Context) bool {
	renewed, grace := e.lease(ctx)
	return e.condition(ocm.ConditionJoined).Status == metav1.ConditionTrue && e.condition(ocm.ConditionAvailable).Status == metav1.ConditionTrue &&
		time.Since(renewed) <= grace && !e.lost
}

// lease returns the zero time if the Lease cannot be read.
func (e *examination) lease(ctx context.Context) (renewed time.Time, grace time.Duration) {
	duration := time.Duration(e.cluster.Spec.LeaseDurationSeconds) * time.Second
	if duration <= 0 {
		duration = time.Minute
	}
	var lease coordinationv1.Lease
	err := kube.Get(ctx, e.Hub, coordinationv1.SchemeGroupVersion.WithKind("Lease"), client.ObjectKey{Namespace: e.ClusterName, Name: ocm.LeaseName}, &lease)
	if err == nil && lease.Spec.RenewTime != nil {
		renewed = lease.Spec.RenewTime.Time
	}
	return renewed, leaseGrace * duration
}

// usesIAM reports whether the cluster registers with an AWS role.
func (e *examination) usesIAM() bool {
	if e.cluster != nil {
		if _, claims, err := irsaname.Claim(e.cluster); claims || err != nil {
			return true
		}
	}
	return e.klusterlet != nil && e.klusterlet.Spec.RegistrationConfiguration.RegistrationDriver.AuthType == "awsirsa"
}

// checkClaim finds what a hub of Open Cluster Management ignores in silence. The hub's conditions name the rest.
func (e *examination) checkClaim(context.Context) doctor.Finding {
	if !e.usesIAM() {
		return doctor.Skipped("The cluster does not register with an AWS role.")
	}
	has := e.cluster.Annotations
	claim, _, err := irsaname.Claim(e.cluster)
	e.claim = claim
	switch {
	case has[awsirsa.ARNAnnotation] == "" && (has[irsaname.OCMARNAnnotation] == "" || has[irsaname.OCMSuffixAnnotation] == ""):
		return e.fault("AnnotationsMissing", "The ManagedCluster lacks an annotation of its AWS role, so the hub makes none.")
	case err != nil:
		return said(e.fault("InvalidClaim", "The cluster claims no valid ARN."), "", err.Error())
	}
	return doctor.Passed("The cluster claims %s.", claim)
}

// checkRole goes by the word of the agent, which tries its role.
func (e *examination) checkRole(context.Context) doctor.Finding {
	c := e.condition(regname.ConditionIAMRoleReady)
	switch {
	case !e.usesIAM():
		return doctor.Skipped("The cluster does not register with an AWS role.")
	case c.Status == metav1.ConditionFalse && c.Reason != regname.ReasonWaiting:
		return e.refused(object{}, c, "RoleRefused", "The agent cannot use the role that the hub has made for it.")
	case c.Status != metav1.ConditionTrue:
		return doctor.Skipped("The agent does not report whether its role works.")
	}
	return doctor.Passed("The agent can use its role.")
}
