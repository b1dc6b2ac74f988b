package csr

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/internal/refusal"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// AddOnApproverOptions configures an [AddOnApprover].
type AddOnApproverOptions struct {
	// Client approves CertificateSigningRequests. Required.
	Client client.Client
	// Reader reads requests, ManagedClusters, ClusterRoles and add-ons at each
	// decision, so it must not be a cache. Its scheme needs ocm.AddToScheme and
	// addon.AddToScheme. Use the manager's API reader. Required.
	Reader client.Reader
	// Events records approvals and refusals. Nil records nothing.
	Events events.EventRecorder
	// Now is the clock. Default: time.Now.
	Now func() time.Time
}

// AddOnApprover approves certificates of add-ons for the hub's API server,
// whichever driver their clusters use. The request has to come from the
// cluster's own agent, or from the recorded agent if the hub has recorded one.
// The subject has to be the default one of [registration.AddOnSubject], because
// agents can write items; other subjects need an approver of their own. The
// add-on's kubeClient item must declare the driver csr or none, and no other
// subject. It is safe for concurrent use.
type AddOnApprover struct{ options AddOnApproverOptions }

// NewAddOnApprover checks the options.
func NewAddOnApprover(options AddOnApproverOptions) (*AddOnApprover, error) {
	if options.Client == nil || options.Reader == nil {
		return nil,
			errors.New("csr: AddOnApproverOptions.Client or Reader is missing: use the manager's client and API reader")
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	return &AddOnApprover{options}, nil
}

// SetupWithManager adds the approver to a manager.
func (a *AddOnApprover) SetupWithManager(mgr ctrl.Manager) error {
	skip := true // two hubs in one process, as in tests
	return ctrl.NewControllerManagedBy(mgr).Named("csr-addon-approver").
		WithOptions(controller.Options{SkipNameValidation: &skip, MaxConcurrentReconciles: approvers}).
		For(&certificatesv1.CertificateSigningRequest{}, builder.OnlyMetadata, appeared(isAddOns)).
		Complete(a)
}

func isOpenAddOn(csr *certificatesv1.CertificateSigningRequest) bool {
	return isAddOns(csr) && isUndecided(csr)
}

// isAddOns reports whether the labels mark a request of an add-on.
func isAddOns(csr client.Object) bool {
	return csr.GetLabels()[ocm.ClusterNameLabel] != "" && csr.GetLabels()[addon.NameLabel] != ""
}

// Reconcile approves a request or leaves it pending.
func (a *AddOnApprover) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	csr := &certificatesv1.CertificateSigningRequest{}
	if err := a.options.Reader.Get(ctx, req.NamespacedName, csr); err != nil || !isOpenAddOn(csr) {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	err := a.check(ctx, csr)
	return decide(ctx, a.options.Client, a.options.Events, a.options.Now, csr,
		"the cluster's agent asks for the subject of the add-on's item", err)
}

func (a *AddOnApprover) check(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) error {
	cluster, name := csr.Labels[ocm.ClusterNameLabel], csr.Labels[addon.NameLabel]
	subject, err := addOnRequest(csr, cluster, name)
	if err != nil {
		return err
	}
	if err := a.checkCluster(ctx, cluster, csr.Spec.Username); err != nil {
		return err
	}
	item, err := a.item(ctx, cluster, name)
	if err != nil {
		return err
	}
	if driver := cmp.Or(item.Driver, registration.AuthTypeCSR); driver != registration.AuthTypeCSR {
		return notYet("OtherDriver",
			"the kubeClient item of add-on %q declares driver %.50q instead of %q: restart the agent, which declares its driver",
			cluster+"/"+name, driver, registration.AuthTypeCSR)
	}
	declared := item.Subject
	if cmp.Or(declared.User, subject.User) != subject.User ||
		len(declared.Groups) > 0 && !sameValues(declared.Groups, subject.Groups) {
		return notYet("SubjectMismatch",
			"the kubeClient item of add-on %q declares user %.200q and groups %.200q, and the request asks for user %q and groups %q: correct the item",
			cluster+"/"+name, declared.User, declared.Groups, subject.User, subject.Groups)
	}
	return nil
}

// addOnRequest returns the subject of a request that the agent of a cluster
// made for the default subject of an add-on. An agent of Open Cluster
// Management names the add-on as the agent, leaves out the second group, and
// adds the host of the add-on.
func addOnRequest(csr *certificatesv1.CertificateSigningRequest, cluster, name string) (none ocm.Subject, err error) {
	if err := errors.Join(registration.CheckClusterName(cluster), registration.CheckAddOnName(name)); err != nil {
		return none, refusal.New("InvalidRequest", "labels %s and %s: %v", ocm.ClusterNameLabel, addon.NameLabel, err)
	}
	request, err := parseFor(csr, name+".addon.open-cluster-management.io")
	if err != nil {
		return none, refusal.New("InvalidRequest", "%v", err)
	}
	const byOthers = "the manager of the add-on decides about other subjects, as in Open Cluster Management"
	parsed := request.Subject
	agent, ok := strings.CutPrefix(parsed.CommonName, registration.AddOnSubject(cluster, name, "").User)
	if !ok || registration.CheckAgentName(agent) != nil {
		return none, refusal.New("SubjectNotDefault",
			"the common name %.200q is not the default one of an agent of add-on %q: %s", parsed.CommonName, cluster+"/"+name,
			byOthers)
	}
	subject := registration.AddOnSubject(cluster, name, agent)
	if want := addOnName(subject); !sameSubject(parsed, want) {
		subject.Groups = subject.Groups[:1]
		if !sameSubject(parsed, addOnName(subject)) {
			return none, refusal.New("SubjectNotDefault",
				"the subject %.500q does not have exactly the common name %q, the organization %q and optionally %q: %s",
				parsed, want.CommonName, want.Organization[0], want.Organization[1], byOthers)
		}
	}
	if groups := registration.ClusterGroups(cluster); !slices.ContainsFunc(csr.Spec.Groups, func(g string) bool {
		return slices.Contains(groups, g)
	}) {
		return none, refusal.New("UnknownRequester",
			"the user %.200q is not the agent of cluster %q: only that one asks for certificates of its add-ons",
			csr.Spec.Username, cluster)
	}
	return subject, nil
}

// checkCluster requires that the cluster is accepted. If an agent of the
// cluster is recorded, it also requires that this agent is the requester.
func (a *AddOnApprover) checkCluster(ctx context.Context, name, user string) error {
	cluster := &ocm.ManagedCluster{}
	if err := a.options.Reader.Get(ctx, client.ObjectKey{Name: name}, cluster); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get ManagedCluster %q: %w", name, err)
	}
	if !stateOf(cluster).HasAccess() {
		return notYet("NotAccepted", "the hub has not accepted cluster %q", name)
	}
	role, err := registration.GetClusterRole(ctx, a.options.Reader, name)
	if err != nil {
		return err
	}
	agent := RecordIn(role, name)
	granted, _ := registration.RecordedClaim(role)
	if granted.AuthType == registration.AuthTypeCSR && agent.Agent != "" && user != agent.User() {
		return notYet("AnotherAgent",
			"cluster %q is accepted for the agent %.100q, and user %.200q asks for this certificate: only the recorded agent may", name, agent.Agent, user)
	}
	return nil
}

// item returns the one kubeClient item of an add-on.
func (a *AddOnApprover) item(ctx context.Context, cluster, name string) (item ocm.Registration, err error) {
	api, err := addon.Discover(a.options.Client.RESTMapper())
	if meta.IsNoMatchError(err) {
		return item, notYet("AddOnsNotServed", "the hub has no API of add-ons")
	} else if err != nil {
		return item, err
	}
	object := api.New()
	err = a.options.Reader.Get(ctx, client.ObjectKey{Namespace: cluster, Name: name}, object)
	if apierrors.IsNotFound(err) || err == nil && !object.GetDeletionTimestamp().IsZero() {
		return item, notYet("NoAddOn", "there is no add-on %q", cluster+"/"+name)
	} else if err != nil {
		return item, fmt.Errorf("get add-on %q: %w", cluster+"/"+name, err)
	}
	items := slices.DeleteFunc(addon.StatusOf(object).Items, func(r ocm.Registration) bool {
		return r.Type != ocm.KubeClient
	})
	if len(items) != 1 {
		return item, notYet("NotOneKubeClientItem", "the add-on %q has %d kubeClient items: it needs exactly one",
			cluster+"/"+name, len(items))
	}
	return items[0], nil
}
