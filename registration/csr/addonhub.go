package csr

import (
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
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// AddOnOptions configures an AddOnApprover.
type AddOnOptions struct {
	// Client approves CertificateSigningRequests. Required.
	Client client.Client
	// Reader reads requests, ManagedClusters and add-ons at each decision, so it must not be a cache. Its scheme needs ocm.AddToScheme
	// and addon.AddAllToScheme. Default: the manager's API reader, or Client without a manager.
	Reader client.Reader
	// Events records approvals and refusals. Nil records nothing.
	Events events.EventRecorder
	// Now is the clock. Default: time.Now.
	Now func() time.Time
}

// AddOnApprover approves certificates of add-ons for the hub's API server, whichever driver their clusters use. The request has to
// come from the cluster's own agent. The add-on's kubeClient item has to declare the driver csr and the subject of the request. The
// subject has to be the default one of registration.AddOnSubject, because agents can write items; other subjects need an approver of
// their own. It is safe for concurrent use.
type AddOnApprover struct {
	options  AddOnOptions
	noReader bool // Reader is the Client
}

// NewAddOnApprover checks the options.
func NewAddOnApprover(options AddOnOptions) (*AddOnApprover, error) {
	if options.Client == nil {
		return nil, errors.New("csr: AddOnOptions.Client is missing: use the manager's client")
	}
	noReader := options.Reader == nil
	if noReader {
		options.Reader = options.Client
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	return &AddOnApprover{options, noReader}, nil
}

// SetupWithManager adds the approver to a manager.
func (a *AddOnApprover) SetupWithManager(mgr ctrl.Manager) error {
	if a.noReader {
		a.options.Reader = mgr.GetAPIReader()
	}
	skip := true // two hubs in one process, as in tests
	return ctrl.NewControllerManagedBy(mgr).Named("csr-addon-approver").
		WithOptions(controller.Options{SkipNameValidation: &skip, MaxConcurrentReconciles: approvers}).
		For(&certificatesv1.CertificateSigningRequest{}, builder.OnlyMetadata, appeared(isAddOns)).
		Complete(a)
}

func isOpenAddOn(csr *certificatesv1.CertificateSigningRequest) bool {
	return isAddOns(csr) && isUndecided(csr)
}

// isAddOns reports whether the labels of a request are those of an add-on's request.
func isAddOns(csr client.Object) bool {
	return csr.GetLabels()[ocm.ClusterNameLabel] != "" && csr.GetLabels()[addon.NameLabel] != ""
}

// Reconcile approves a request or leaves it pending.
func (a *AddOnApprover) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	csr := &certificatesv1.CertificateSigningRequest{}
	if err := a.options.Reader.Get(ctx, req.NamespacedName, csr); err != nil || !isOpenAddOn(csr) {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	err := a.judge(ctx, csr)
	return decide(ctx, a.options.Client, a.options.Events, a.options.Now, csr, "the cluster's agent asks for the subject of the add-on's item", err)
}

func (a *AddOnApprover) judge(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) error {
	cluster, name := csr.Labels[ocm.ClusterNameLabel], csr.Labels[addon.NameLabel]
	subject, err := addOnRequest(csr, cluster, name)
	if err != nil {
		return &refusal{reason: err.Error(), final: true}
	}
	if err := a.checkCluster(ctx, cluster); err != nil {
		return err
	}
	item, err := a.item(ctx, cluster, name)
	if err != nil {
		return err
	}
	if item.Driver != ocm.DriverCSR || item.Subject.User != subject.User || !sameValues(item.Subject.Groups, subject.Groups) {
		return notYet("the kubeClient item of add-on %q declares driver %.50q and user %.200q, and the request asks for user %q: the agent has to declare the driver %q and this subject",
			cluster+"/"+name, item.Driver, item.Subject.User, subject.User, ocm.DriverCSR)
	}
	return nil
}

// addOnRequest returns the subject of a request that the agent of a cluster made for the default subject of an add-on.
func addOnRequest(csr *certificatesv1.CertificateSigningRequest, cluster, name string) (none ocm.Subject, err error) {
	request, err := parse(csr)
	if err != nil {
		return none, err
	}
	parsed := request.Subject
	if err := errors.Join(registration.CheckClusterName(cluster), registration.CheckAddOnName(name)); err != nil {
		return none, fmt.Errorf("labels %s and %s: %w", ocm.ClusterNameLabel, addon.NameLabel, err)
	}
	agent, ok := strings.CutPrefix(parsed.CommonName, registration.AddOnSubject(cluster, name, "").User)
	if !ok || registration.CheckAgentName(agent) != nil {
		return none, fmt.Errorf("the common name %.200q is not the default one of an agent of add-on %q: approve it with an approver of the add-on", parsed.CommonName, cluster+"/"+name)
	}
	subject := registration.AddOnSubject(cluster, name, agent)
	if want := addOnName(subject); !sameSubject(parsed, want) {
		return none, fmt.Errorf("the subject %.500q does not have exactly the common name %q and the organizations %q", parsed, want.CommonName, want.Organization)
	}
	if groups := registration.ClusterGroups(cluster); !slices.ContainsFunc(csr.Spec.Groups, func(g string) bool { return slices.Contains(groups, g) }) {
		return none, fmt.Errorf("the user %.200q is not the agent of cluster %q: only that one asks for certificates of its add-ons", csr.Spec.Username, cluster)
	}
	return subject, nil
}

func (a *AddOnApprover) checkCluster(ctx context.Context, name string) error {
	cluster := &ocm.ManagedCluster{}
	if err := a.options.Reader.Get(ctx, client.ObjectKey{Name: name}, cluster); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get ManagedCluster %q: %w", name, err)
	}
	if !isAccepted(cluster) {
		return notYet("the hub has not accepted cluster %q", name)
	}
	return nil
}

// item returns the one kubeClient item of an add-on.
func (a *AddOnApprover) item(ctx context.Context, cluster, name string) (item ocm.Registration, err error) {
	api, err := addon.Discover(a.options.Client.RESTMapper())
	if meta.IsNoMatchError(err) {
		return item, notYet("the hub has no API of add-ons")
	} else if err != nil {
		return item, err
	}
	object := api.New()
	err = a.options.Reader.Get(ctx, client.ObjectKey{Namespace: cluster, Name: name}, object)
	if apierrors.IsNotFound(err) || err == nil && !object.GetDeletionTimestamp().IsZero() {
		return item, notYet("there is no add-on %q", cluster+"/"+name)
	} else if err != nil {
		return item, fmt.Errorf("get add-on %q: %w", cluster+"/"+name, err)
	}
	items := slices.DeleteFunc(addon.StatusOf(object).Items, func(r ocm.Registration) bool { return r.Type != ocm.KubeClient })
	if len(items) != 1 {
		return item, notYet("the add-on %q has %d kubeClient items: it needs exactly one", cluster+"/"+name, len(items))
	}
	return items[0], nil
}
