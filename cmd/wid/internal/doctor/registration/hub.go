package registration

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor/internal/kube"
	"github.com/workloadid/workloadid/internal/kubeerror"
	"github.com/workloadid/workloadid/internal/lenient"
	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/ocm/addon/v1alpha1"
)

const hubNamespace = ocm.HubNamespace

// showCluster shows the ManagedCluster, and what the hub's Events say of it.
func (e *examination) showCluster(ctx context.Context) doctor.Finding {
	c := e.cluster
	switch {
	case apierrors.IsNotFound(e.clusterErr) && len(e.own.data["kubeconfig"]) > 0:
		return doctor.Failed("NoManagedCluster", e.join(),
			"The hub has no ManagedCluster %s, but the agent has a credential: it was deleted at the hub.", e.ClusterName)
	case apierrors.IsNotFound(e.clusterErr):
		look := e.atHub("compare the names of its clusters:", "kubectl get managedclusters")
		if e.Spoke != nil {
			look = e.readLog()
		}
		return doctor.Failed("AgentNeverArrived", look,
			"The hub has no ManagedCluster %s: the cluster has another name there, "+
				"or its agent has never reached the hub.", e.ClusterName)
	case e.clusterErr != nil:
		return unread("ManagedCluster %s: %s", e.ClusterName, kubeerror.Message(e.clusterErr))
	case c.DeletionTimestamp != nil:
		why := cmp.Or(against(c.Status.Conditions, ocm.ConditionReconciled, ocm.ConditionDeleting), &metav1.Condition{})
		return doctor.Failed("Deleting", e.readCluster("see what its finalizers wait for:"),
			"being deleted since %s; finalizers %.300s. %s",
			kube.Stamp(c.DeletionTimestamp.Time), strings.Join(c.Finalizers, ", "), quote(*why)).
			With(c.DeletionTimestamp.Time, time.Time{})
	}
	accepted := time.Time{}
	if e.state.Stage == registration.StageAccepted {
		accepted = e.state.Since
	}
	events := e.events(ctx, metav1.NamespaceDefault, c.UID, e.readCluster("read the whole of it:"))
	text := fmt.Sprintf("created %s ago", doctor.Age(c.CreationTimestamp.Time))
	switch {
	case e.roleErr != nil:
		text += "; its claim is not known: " + kubeerror.Message(e.roleErr)
	case e.state.Claim.AuthType != "":
		text += "; " + e.state.Claim.String()
	case e.state.Stage == registration.StagePending:
		text += "; the hub has not published its claim yet"
	}
	if c.Unreadable != "" {
		text += fmt.Sprintf("; a value cannot be read: %s", c.Unreadable)
	}
	return doctor.Passed("%s", text).With(time.Time{}, accepted, events...)
}

// showProgram goes by the conditions of the Deployment, and asks the API server
// for a right without which the program does nothing.
func (e *examination) showProgram(ctx context.Context) (f doctor.Finding) {
	published := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: hubNamespace, Name: ocm.HubAuthTypes}
	if kube.Get(ctx, e.Hub, corev1.SchemeGroupVersion.WithKind("ConfigMap"), key, published) == nil {
		defer func() {
			f = f.Detail("auth types", fmt.Sprintf("%.200q, default %.63q",
				published.Data[ocm.KeyAuthTypes], published.Data[ocm.KeyDefaultAuthType]))
		}()
	}
	d, f := e.showDeployment(ctx, e.Hub, e.atHub, client.ObjectKey{Namespace: hubNamespace, Name: ocm.HubDeployment})
	switch {
	case d == nil && f.Class == missing:
		return doctor.Skipped("%s Another program may do its work", f.Message)
	case d == nil:
		return f
	case f.Result == doctor.Fail:
		f.Class = "HubNotRunning"
	}
	user := "system:serviceaccount:" + hubNamespace + ":" + d.Spec.Template.Spec.ServiceAccountName
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + hubNamespace, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "patch", Group: ocm.GroupVersion.Group,
			Resource: "managedclusters", Subresource: "status"}}}
	if err := e.Hub.Create(ctx, review); err != nil {
		return f.Detail("rights", "not asked: "+kubeerror.Message(err))
	}
	if !review.Status.Allowed {
		install := e.atHub("install the program's rights again, with its image and flags:",
			"wid hub init --image HUB_IMAGE --apply")
		return doctor.Failed("HubForbidden", install,
			"The API server does not allow %.200q to patch managedclusters/status. %.200s",
			user, review.Status.Reason).With(time.Now(), time.Time{})
	}
	return f
}

// showDecision compares what an administrator wants with what the hub says that
// it has done.
func (e *examination) showDecision(context.Context) doctor.Finding {
	c, s := conditionOf(e.cluster.Status.Conditions, ocm.ConditionHubAccepted), e.state
	wanted := fmt.Sprintf("spec.hubAcceptsClient is %t", e.cluster.Spec.HubAcceptsClient)
	idle := e.atHub("see why its program does not act:", "kubectl logs -n "+hubNamespace+" deploy/"+ocm.HubDeployment)
	since := s.Since
	f := doctor.Passed("%s", quote(c))
	failing := against(e.cluster.Status.Conditions, ocm.ConditionReconciled)
	switch {
	case s.Stage == registration.StageDenied && s.Acted:
		f = doctor.Failed(c.Reason, e.accept(), "%s. %s", wanted, quote(c))
	case failing != nil:
		f, since = doctor.Failed(failing.Reason, e.readCluster("correct the cause that it quotes, and the hub retries:"),
			"%s. %s", wanted, quote(*failing)), failing.LastTransitionTime.Time
	case s.Stage == registration.StageAccepted && !s.Accepts:
		f = doctor.Failed("HubNotActing", idle, "%s, but the agent still has access: %s", wanted, quote(c))
	case s.Stage == registration.StageRefused && !s.Accepts:
		f = doctor.Failed(c.Reason, e.action(c.Reason, e.readCluster("read the whole of it:")), "%s. %s", wanted, quote(c))
	case !s.Accepts:
		f, since = doctor.Failed("NotAccepted", e.accept(), "%s: the cluster waits for an administrator", wanted),
			e.cluster.CreationTimestamp.Time
	case !s.Acted:
		f = doctor.Failed("HubNotActing", idle, "%s, but the hub has not acted on it: %s", wanted, quote(c))
	case s.Stage == registration.StageRefused:
		f = doctor.Failed(c.Reason, e.action(c.Reason, e.readCluster("read the whole of it:")), "%s", quote(c))
	}
	return f.With(since, time.Time{})
}

// against returns the first of the conditions that is not True, in the given
// order, nil if there is none.
func against(conditions []metav1.Condition, kinds ...string) *metav1.Condition {
	for _, kind := range kinds {
		if c := conditionOf(conditions, kind); c.Status == metav1.ConditionFalse || c.Status == metav1.ConditionUnknown {
			return &c
		}
	}
	return nil
}

// showConditions quotes the first condition that is not as it should be. The
// age of a missing renewal is the age of the Lease.
func (e *examination) showConditions(context.Context) doctor.Finding {
	all := e.cluster.Status.Conditions
	joined, available := conditionOf(all, ocm.ConditionJoined), conditionOf(all, ocm.ConditionAvailable)
	if joined.Status == "" {
		return unread("The agent has not reported yet that it has joined.")
	}
	c := against(all, ocm.ConditionJoined, ocm.ConditionClockSynced, ocm.ConditionCertificateRotated,
		ocm.ConditionAvailable)
	if c == nil {
		return doctor.Passed("%s; %s", quote(joined), quote(available))
	}
	since := c.LastTransitionTime.Time
	if c.Reason == ocm.ReasonLeaseStopped {
		since = e.renewed()
	}
	return doctor.Failed(c.Reason, e.readLog(), "%s", quote(*c)).With(since, time.Time{})
}

// leaseGrace is how many durations the hub waits.
const leaseGrace = 5

func (e *examination) showLease(context.Context) doctor.Finding {
	if e.lease != nil && e.lease.Spec.RenewTime.After(time.Now().Add(kube.MaxSkew)) {
		return doctor.Failed("ClockSkew", synchronize(), "the agent renewed it at %s, which is in the future",
			kube.Stamp(e.lease.Spec.RenewTime.Time)).With(time.Now(), time.Time{})
	}
	at := e.renewed()
	if at.IsZero() {
		return doctor.Unclear(e.readLog(), "The agent has not renewed it yet.")
	}
	waits := leaseGrace * time.Minute
	if seconds := e.cluster.Spec.LeaseDurationSeconds; seconds > 0 {
		waits = leaseGrace * time.Duration(seconds) * time.Second
	}
	text := fmt.Sprintf("the agent renewed it %s ago, at %s", doctor.Age(at), kube.Stamp(at))
	if time.Since(at) > waits {
		return doctor.Failed(ocm.ReasonLeaseStopped, e.readLog(), "%s; the hub waits for %s", text, waits).With(at,
			time.Time{})
	}
	return doctor.Passed("%s", text)
}

// addOn holds the fields of a ManagedClusterAddOn that the versions of its API
// share.
type addOn struct {
	metav1.ObjectMeta `json:"metadata"`

	Status struct {
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

// UnmarshalJSON reads all but the values that Go cannot decode.
func (a *addOn) UnmarshalJSON(data []byte) error {
	type plain addOn
	_, err := lenient.Unmarshal(data, (*plain)(a), &a.Status.Conditions)
	return err
}

// showAddOns quotes the first condition about a credential that is False.
func (e *examination) showAddOns(ctx context.Context) doctor.Finding {
	var all []addOn
	var err error
	for _, version := range []schema.GroupVersion{v1alpha1.GroupVersion, addon.GroupVersion} {
		if all, err = kube.List[addOn](ctx, e.Hub, version.WithKind("ManagedClusterAddOn"),
			client.InNamespace(e.ClusterName)); !kube.Absent(err) {
			break
		}
	}
	switch {
	case err != nil && !kube.Absent(err):
		return unread("the add-ons: %s", kubeerror.Message(err))
	case len(all) == 0:
		return doctor.Skipped("The cluster has no add-ons.")
	}
	f := doctor.Passed("%d, and no condition is against their credentials", len(all))
	for i := range all {
		a := &all[i]
		look := e.atHub("read the whole of it:",
			"kubectl get managedclusteraddon -n "+e.name()+" "+shell.Word(a.Name, "ADDON")+" -o yaml")
		kinds := credentialConditions(a.Status.Conditions)
		if wrong := against(a.Status.Conditions, kinds...); wrong != nil && f.Result == doctor.Pass {
			f = doctor.Failed(wrong.Reason, e.action(wrong.Reason, look), "%.63s: %s", a.Name, quote(*wrong)).
				With(wrong.LastTransitionTime.Time, time.Time{})
		}
		worked := time.Time{}
		for _, kind := range kinds {
			if c := conditionOf(a.Status.Conditions, kind); c.Status == metav1.ConditionTrue {
				worked = c.LastTransitionTime.Time
			}
		}
		if f.Events == nil {
			f = f.With(f.Since, worked, e.events(ctx, e.ClusterName, a.UID, look)...)
		}
	}
	return f
}

// credentialConditions are an add-on's conditions, in the order in which it
// gets its credential. The driver csr leaves its condition behind when a token
// replaces the certificate.
func credentialConditions(all []metav1.Condition) []string {
	kinds := []string{ocm.ConditionRegistrationAccepted, addon.ConditionTokenInfrastructureReady,
		ocm.ConditionAddOnTokenRefreshed, ocm.ConditionTokenRefreshed}
	if conditionOf(all, addon.ConditionTokenInfrastructureReady).Status == "" {
		kinds = append(kinds, ocm.ConditionCertificateRotated)
	}
	return kinds
}

// showRole goes by the word of the agent, which tries its role.
func (e *examination) showRole(context.Context) doctor.Finding {
	claim := e.state.Claim.Value
	c := conditionOf(e.cluster.Status.Conditions, ocm.ConditionIAMRoleReady)
	switch authType := e.state.Claim.AuthType; {
	case e.roleErr != nil && c.Status == "":
		return unread("whether the cluster registers with an AWS role: %s", kubeerror.Message(e.roleErr))
	case authType == "" && c.Status == "":
		return doctor.Skipped("The hub has read no claim of the cluster.")
	case authType != "" && authType != registration.AuthTypeAWS:
		return doctor.Skipped("The cluster does not register with an AWS role.")
	case c.Status == metav1.ConditionFalse && c.Reason != ocm.ReasonWaiting:
		verify := "wid hub policies --verify --eks-hub-cluster-arn HUB_ARN --eks-managed-cluster-arn " +
			shell.Word(claim, "CLUSTER_ARN") + " --oidc-issuer ISSUER"
		return doctor.Failed(c.Reason,
			doctor.Do("With your login at the cluster's AWS account, compare the agent's role with what it has to be:", verify),
			"%s", quote(c)).
			With(c.LastTransitionTime.Time, time.Time{})
	case c.Status != metav1.ConditionTrue:
		return unread("%.200s: the agent has not reported whether its role works", claim)
	}
	return doctor.Passed("%.200s: %s", claim, quote(c))
}
