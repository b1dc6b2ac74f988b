package csr

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/workloadid/workloadid/internal/kubeevent"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/internal/advice"
	"github.com/workloadid/workloadid/registration/internal/refusal"
	"github.com/workloadid/workloadid/registration/ocm"
)

const (
	// requestAnnotation names, on a ManagedCluster, the first request of a user
	// in AutoApproveUsers. Setting it makes the hub reconciler call Approves.
	// An agent may set it too, because it only names the request that Approves
	// checks.
	requestAnnotation = "registration.open-cluster-management.io/first-request"
	// searchInterval is the interval at which the hub searches for an approved
	// request of a cluster without a recorded agent. kube-controller-manager
	// deletes such a request an hour after the approval.
	searchInterval = 30 * time.Minute
	// A refused request is checked again after its own age, within these
	// bounds.
	minRetry = time.Second
	maxRetry = 5 * time.Minute
	// approvers is the number of concurrent checks.
	approvers = 4
	// rivalsKnown is the time for which two requests for a cluster refuse
	// others without a new list of all requests. maxRivals bounds the clusters
	// with such requests.
	rivalsKnown = 5 * time.Second
	maxRivals   = 1000
	// renewalPause is the time for which further renewals of a cluster wait
	// behind first requests. An agent renews after hours.
	renewalPause = 10 * time.Second
)

// everyone lists groups that contain all users, or all workloads.
var everyone = []string{"system:authenticated", "system:unauthenticated", "system:serviceaccounts",
	ocm.ManagedClustersGroup}

// HubDriverOptions configures the hub's half.
type HubDriverOptions struct {
	// Client approves requests, creates SubjectAccessReviews and updates
	// ClusterRoles. It lists the metadata of CertificateSigningRequests, which
	// may come from a cache. Required.
	Client client.Client
	// Reader reads requests, ManagedClusters and ClusterRoles at each decision,
	// so it must not be a cache. Use the manager's API reader. Required.
	Reader client.Reader
	// BootstrapUsers and BootstrapGroups name the bootstrap users. The hub
	// approves their first requests once the cluster is accepted. Each
	// bootstrap token is a user of its own, with the groups in its Secret.
	BootstrapUsers, BootstrapGroups []string
	// AutoApproveUsers are bootstrap users whose clusters the hub accepts
	// automatically. Empty: an administrator accepts each cluster.
	AutoApproveUsers []string
	// Events records approvals and refusals. Nil records nothing.
	Events events.EventRecorder
	// Now is the clock. Default: time.Now.
	Now func() time.Time
}

// HubDriver is the hub's half. It is safe for concurrent use.
type HubDriver struct {
	options HubDriverOptions
	rivals  *cache.LRUExpireCache // a [2]rival for each cluster
	renewed *cache.LRUExpireCache // the name of the last renewal of each cluster
}

// rival is a first request of a bootstrap user.
type rival struct {
	Identity
	name, user string
}

func rivalOf(r *Request) rival { return rival{r.Identity, r.Object.Name, r.Object.Spec.Username} }

var (
	_ registration.HubDriver   = (*HubDriver)(nil)
	_ registration.HubRecorded = (*HubDriver)(nil)
)

// NewHubDriver returns the hub's half of the driver.
func NewHubDriver(options HubDriverOptions) (*HubDriver, error) {
	if options.Client == nil || options.Reader == nil {
		return nil, errors.New("csr: HubDriverOptions.Client or Reader is missing: use the manager's client and API reader")
	}
	for _, group := range options.BootstrapGroups {
		if slices.Contains(everyone, group) {
			return nil,
				fmt.Errorf(
					"csr: the bootstrap group %q would let agents of other clusters or all users get any cluster's certificate: use a group of its own", group)
		}
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	return &HubDriver{options: options, rivals: cache.NewLRUExpireCache(maxRivals),
		renewed: cache.NewLRUExpireCache(maxRivals)}, nil
}

// Name returns "csr".
func (h *HubDriver) Name() string { return registration.AuthTypeCSR }

// Claim reads no annotations. Clusters with certificates belong to the hub's
// default driver.
func (h *HubDriver) Claim(*ocm.ManagedCluster) (string, bool, error) { return "", false, nil }

// Grant records the agent whose request a person has approved, often before the
// ClusterRole existed. The access itself needs no grant, because a certificate
// has the groups that the hub's RBAC names.
func (h *HubDriver) Grant(ctx context.Context, name, _ string) (time.Duration, error) {
	role, err := h.checkRecord(ctx, name)
	if err != nil || RecordIn(role, name).Agent != "" {
		return 0, err
	}
	cluster := &ocm.ManagedCluster{}
	if err := h.options.Reader.Get(ctx, client.ObjectKey{Name: name}, cluster); err != nil {
		return 0, fmt.Errorf("get ManagedCluster %q: %w", name, err)
	}
	if agent, err := h.agentOf(ctx, cluster, role); err != nil || agent.Agent != "" {
		return 0, err
	}
	return searchInterval, nil
}

// Granted reports whether the ClusterRole records the agent of a cluster that
// is accepted for this driver.
func (h *HubDriver) Granted(cluster string, role *rbacv1.ClusterRole) bool {
	granted, _ := registration.RecordedClaim(role)
	return granted.AuthType == registration.AuthTypeCSR && RecordIn(role, cluster).Agent != ""
}

// Revoke does nothing, because without RBAC a certificate gives no access and
// cannot be renewed.
func (h *HubDriver) Revoke(context.Context, string, string) error { return nil }

// Approves reports whether a user in AutoApproveUsers has asked for the
// certificate of a cluster that has neither joined nor been denied.
func (h *HubDriver) Approves(ctx context.Context, cluster *ocm.ManagedCluster, _ string) (bool, error) {
	name := cluster.Annotations[requestAnnotation]
	if len(h.options.AutoApproveUsers) == 0 || name == "" || !isNew(cluster) {
		return false, nil
	}
	csr := &certificatesv1.CertificateSigningRequest{}
	if err := h.options.Reader.Get(ctx, client.ObjectKey{Name: name}, csr); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	request, err := Parse(csr)
	return err == nil && request.Cluster == cluster.Name && isOpen(csr) &&
		slices.Contains(h.options.AutoApproveUsers, csr.Spec.Username), nil
}

// isNew reports whether a cluster has neither joined nor been denied.
func isNew(cluster *ocm.ManagedCluster) bool {
	s := stateOf(cluster)
	return s.Reason != ocm.ReasonHubDenied && s.Joined != metav1.ConditionTrue
}

// stateOf returns the state of a cluster without its claim.
func stateOf(cluster *ocm.ManagedCluster) registration.State {
	return registration.StateOf(cluster, nil, registration.Claim{})
}

// appeared selects new requests of a kind, and requests whose labels have
// changed. Before its decision, a request changes in no other way.
func appeared(kind func(client.Object) bool) builder.Predicates {
	return builder.WithPredicates(predicate.NewPredicateFuncs(kind), predicate.LabelChangedPredicate{})
}

// Setup adds the approver to the manager. The hub.Hub calls it.
func (h *HubDriver) Setup(mgr ctrl.Manager) error {
	accepted := predicate.NewPredicateFuncs(func(o client.Object) bool {
		cluster, ok := o.(*ocm.ManagedCluster)
		return ok && stateOf(cluster).HasAccess()
	})
	skip := true // two hubs in one process, as in tests
	others := make(chan event.GenericEvent)
	err := ctrl.NewControllerManagedBy(mgr).Named("csr-first-requests").
		WithOptions(controller.Options{SkipNameValidation: &skip, MaxConcurrentReconciles: 1}).
		WatchesRawSource(source.Channel(others, &handler.EnqueueRequestForObject{})).
		Complete(reconcile.Func(h.reconcile))
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).Named("csr-approver").
		WithOptions(controller.Options{SkipNameValidation: &skip, MaxConcurrentReconciles: approvers}).
		For(&certificatesv1.CertificateSigningRequest{}, builder.OnlyMetadata, appeared(isAgents)).
		Watches(&ocm.ManagedCluster{}, handler.EnqueueRequestsFromMapFunc(h.requestsOf), builder.WithPredicates(accepted)).
		Complete(reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			return h.sort(ctx, req, others)
		}))
}

// sort reconciles a renewal and leaves every other request to a single worker,
// because bootstrap users can create any number of requests. Agents can too, so
// further renewals of a cluster also go to that worker. sort decides by the
// user that the API server states. A predicate cannot: the cache holds only the
// metadata of requests.
func (h *HubDriver) sort(
	ctx context.Context, req reconcile.Request, others chan<- event.GenericEvent,
) (reconcile.Result, error) {
	csr := &certificatesv1.CertificateSigningRequest{}
	if err := h.options.Reader.Get(ctx, req.NamespacedName, csr); err != nil || !isOpen(csr) {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if cluster := csr.Labels[ocm.ClusterNameLabel]; strings.HasPrefix(csr.Spec.Username,
		registration.AgentUser(cluster, "")) {
		if last, recent := h.renewed.Get(cluster); !recent || last == csr.Name {
			h.renewed.Add(cluster, csr.Name, renewalPause)
			return h.reconcile(ctx, req)
		}
	}
	select {
	case others <- event.GenericEvent{
		Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: csr.Name}}}:
	case <-ctx.Done():
	}
	return reconcile.Result{}, ctx.Err()
}

// requestsOf returns the requests of a cluster's agents. The cache does not
// know which requests are open.
func (h *HubDriver) requestsOf(ctx context.Context, cluster client.Object) (all []reconcile.Request) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequestList"))
	if err := h.options.Client.List(ctx, list,
		client.MatchingLabels{ocm.ClusterNameLabel: cluster.GetName()}); err != nil {
		return nil // they are checked again anyway
	}
	for i := range list.Items {
		if isAgents(&list.Items[i]) {
			all = append(all, reconcile.Request{NamespacedName: client.ObjectKey{Name: list.Items[i].Name}})
		}
	}
	return all
}

// reconcile approves a request or leaves it pending.
func (h *HubDriver) reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	csr := &certificatesv1.CertificateSigningRequest{}
	if err := h.options.Reader.Get(ctx, req.NamespacedName, csr); err != nil || !isOpen(csr) {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	rule, err := h.check(ctx, csr)
	return decide(ctx, h.options.Client, h.options.Events, h.options.Now, csr, rule, err)
}

// decide approves the request, or leaves it pending and returns the time of the
// next check.
func decide(ctx context.Context, c client.Client, recorder events.EventRecorder, now func() time.Time,
	csr *certificatesv1.CertificateSigningRequest, rule string, err error) (reconcile.Result, error) {
	if err == nil {
		if err := setDecision(ctx, c, csr, certificatesv1.CertificateApproved, rule); err != nil {
			return reconcile.Result{}, err
		}
		kubeevent.Record(recorder, csr, corev1.EventTypeNormal, "Approved", ocm.ActionApprove, rule)
		return reconcile.Result{}, nil
	}
	var no *refusal.Error
	if !errors.As(err, &no) {
		return reconcile.Result{}, err
	}
	kubeevent.Record(recorder, csr, corev1.EventTypeWarning, no.Reason, ocm.ActionApprove, no.Message)
	if no.Retry == 0 {
		return reconcile.Result{}, nil
	}
	age := now().Sub(csr.CreationTimestamp.Time)
	return reconcile.Result{RequeueAfter: min(max(age, no.Retry), maxRetry)}, nil
}

// notYet refuses a request for a cause that may change. Each cause has a reason
// of its own, because client-go merges Events with the same object and reason,
// and drops the later texts.
func notYet(reason, format string, args ...any) error {
	return refusal.New(reason, format, args...).After(minRetry)
}

// check returns the rule that approves a request, or a refusal.
func (h *HubDriver) check(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) (rule string, err error) {
	request, err := Parse(csr)
	if err != nil {
		return "", refusal.New("InvalidRequest", "%v", err)
	}
	cluster := &ocm.ManagedCluster{}
	if err := h.options.Reader.Get(ctx, client.ObjectKey{Name: request.Cluster}, cluster); apierrors.IsNotFound(err) {
		return "", notYet("NoManagedCluster", "there is no ManagedCluster %q", request.Cluster)
	} else if err != nil {
		return "", fmt.Errorf("get ManagedCluster %q: %w", request.Cluster, err)
	}
	if !stateOf(cluster).HasAccess() {
		if err := h.announce(ctx, cluster, csr); err != nil {
			return "", err
		}
		return "", notYet("NotAccepted", "the hub has not accepted cluster %q", request.Cluster)
	}
	role, err := h.checkRecord(ctx, request.Cluster)
	if err != nil {
		return "", err
	}
	if request.IsRenewal() {
		rule, err = "the agent renews its own certificate", h.checkRenewal(ctx, request)
	} else {
		rule, err = "first request of a bootstrap user for an accepted cluster", h.checkFirst(cluster, csr)
	}
	if err != nil {
		return "", err
	}
	return rule, h.checkAgent(ctx, cluster, role, request)
}

// announce makes the hub reconciler call Approves for the first request of a
// user in AutoApproveUsers.
func (h *HubDriver) announce(ctx context.Context, cluster *ocm.ManagedCluster,
	csr *certificatesv1.CertificateSigningRequest) error {
	if !slices.Contains(h.options.AutoApproveUsers, csr.Spec.Username) || !isNew(cluster) ||
		cluster.Annotations[requestAnnotation] == csr.Name {
		return nil
	}
	base := cluster.DeepCopy()
	metav1.SetMetaDataAnnotation(&cluster.ObjectMeta, requestAnnotation, csr.Name)
	if err := h.options.Client.Patch(ctx, cluster, client.MergeFrom(base)); err != nil {
		return fmt.Errorf("annotate ManagedCluster %q: %w", cluster.Name, err)
	}
	return nil
}

// checkRecord refuses a cluster that the hub has accepted for another driver,
// because the users of that driver need more than a bootstrap credential.
func (h *HubDriver) checkRecord(ctx context.Context, cluster string) (*rbacv1.ClusterRole, error) {
	role, err := registration.GetClusterRole(ctx, h.options.Reader, cluster)
	if err != nil {
		return nil, err
	}
	if granted, _ := registration.RecordedClaim(role); granted.AuthType != registration.AuthTypeCSR {
		return nil, notYet("OtherAuthType", "cluster %q is accepted with auth type %.100q instead of %q",
			cluster, granted.AuthType, registration.AuthTypeCSR)
	}
	return role, nil
}

// agentOf returns the agent that a cluster is accepted for, or the zero value.
// The hub records an agent before it approves. So without a record, a person
// approved a request. agentOf records the last one for this ManagedCluster.
func (h *HubDriver) agentOf(ctx context.Context, cluster *ocm.ManagedCluster,
	role *rbacv1.ClusterRole) (Identity, error) {
	agent := RecordIn(role, cluster.Name)
	if agent.Agent != "" {
		return agent, nil
	}
	var last *Request
	var at metav1.Time
	for csr, err := range eachRequest(ctx, h.options.Reader, client.MatchingLabels{ocm.ClusterNameLabel: cluster.Name}) {
		if err != nil {
			return agent, fmt.Errorf("cluster %q: %w", cluster.Name, err)
		}
		approval := decision(csr, certificatesv1.CertificateApproved)
		if approval == nil || csr.CreationTimestamp.Before(&cluster.CreationTimestamp) ||
			approval.LastTransitionTime.Before(&at) {
			continue
		}
		if request, err := Parse(csr); err == nil {
			last, at = request, approval.LastTransitionTime
		}
	}
	if last == nil {
		return agent, nil
	}
	return last.Identity, last.Record(ctx, h.options.Client, role)
}

// checkAgent allows one agent for each cluster, and one key for first requests.
// It records them before the approval: of two concurrent requests, one fails to
// write.
func (h *HubDriver) checkAgent(ctx context.Context, cluster *ocm.ManagedCluster, role *rbacv1.ClusterRole,
	request *Request) error {
	first := !request.IsRenewal()
	if pair, ok := h.rivals.Get(cluster.Name); ok && first && RecordIn(role, cluster.Name).Agent == "" {
		return severalRequests(request, pair.([2]rival)) //nolint:errcheck,forcetypeassert // of no other type
	}
	agent, err := h.agentOf(ctx, cluster, role)
	if err == nil && agent.Agent == "" && first {
		err = h.checkRivals(ctx, request)
	}
	if err != nil {
		return err
	}
	reason, differs := "AnotherAgent", fmt.Sprintf("is for the agent %q", request.Agent)
	switch agent.Agent {
	case "":
		return request.Record(ctx, h.options.Client, role)
	case request.Agent:
		if !first || agent.Key == request.Key {
			return nil
		}
		reason, differs = "AnotherKey", "has another key"
	}
	return notYet(reason,
		"cluster %q is accepted for the agent %.100q, and this request %s: if it comes from the right agent, run %s, which replaces "+
			"the recorded agent", request.Cluster, agent.Agent, differs, advice.Approve(request.Cluster, request.Object.Name))
}

// checkRivals refuses a first request if a bootstrap user asks for the same
// cluster with another key, even in the name of the same agent. It remembers
// the two requests. They refuse other requests for some seconds, but never
// approve one.
func (h *HubDriver) checkRivals(ctx context.Context, request *Request) error {
	for other, err := range eachRequest(ctx, h.options.Reader,
		client.MatchingLabels{ocm.ClusterNameLabel: request.Cluster}) {
		if err != nil {
			return fmt.Errorf("cluster %q: %w", request.Cluster, err)
		}
		if !isOpen(other) || !h.isBootstrapUser(&other.Spec) {
			continue
		}
		if parsed, err := Parse(other); err == nil && parsed.Identity != request.Identity {
			pair := [2]rival{rivalOf(parsed), rivalOf(request)}
			h.rivals.Add(request.Cluster, pair, rivalsKnown)
			return severalRequests(request, pair)
		}
	}
	return nil
}

// severalRequests refuses a request because of one of two different requests.
func severalRequests(request *Request, pair [2]rival) error {
	other := pair[0]
	if other.Identity == request.Identity {
		other = pair[1]
	}
	return notYet("SeveralRequests",
		"the agents %q and %q both ask for cluster %q, with the keys %.8s and %.8s: if this request comes from the right agent, "+
			"run %s; the other one is request %.100q of user %.200q",
		request.Agent, other.Agent, request.Cluster, request.Key, other.Key,
		advice.Approve(request.Cluster, request.Object.Name), other.name, other.user)
}

// checkFirst allows requests of bootstrap users until the cluster has joined.
func (h *HubDriver) checkFirst(cluster *ocm.ManagedCluster, csr *certificatesv1.CertificateSigningRequest) error {
	if !h.isBootstrapUser(&csr.Spec) {
		return notYet("UnknownRequester", "user %.200q is neither the agent that the request names nor a bootstrap user",
			csr.Spec.Username)
	}
	if stateOf(cluster).Joined == metav1.ConditionTrue {
		return notYet("AlreadyJoined",
			"cluster %q has joined, so only its agent may ask: if the agent lost its certificate, run %s, which replaces the agent; "+
				"any other request needs no answer, since it grants nothing and Kubernetes deletes it after a day", cluster.Name,
			advice.Approve(cluster.Name, csr.Name))
	}
	return nil
}

func (h *HubDriver) isBootstrapUser(spec *certificatesv1.CertificateSigningRequestSpec) bool {
	return slices.Contains(h.options.BootstrapUsers, spec.Username) ||
		slices.Contains(h.options.AutoApproveUsers, spec.Username) ||
		slices.ContainsFunc(spec.Groups, func(g string) bool { return slices.Contains(h.options.BootstrapGroups, g) })
}

// checkRenewal asks the API server whether the agent may renew.
func (h *HubDriver) checkRenewal(ctx context.Context, request *Request) error {
	spec := &request.Object.Spec
	extra := make(map[string]authorizationv1.ExtraValue, len(spec.Extra))
	for key, value := range spec.Extra {
		extra[key] = authorizationv1.ExtraValue(value)
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: spec.Username, UID: spec.UID, Groups: spec.Groups, Extra: extra,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Group: "register.open-cluster-management.io",
			Resource: "managedclusters", Subresource: "clientcertificates", Verb: "renew", Name: request.Cluster},
	}}
	if err := h.options.Client.Create(ctx, review); err != nil {
		return fmt.Errorf("review the access of %q: %w", spec.Username, err)
	}
	if !review.Status.Allowed {
		return notYet("RenewalForbidden", "RBAC does not allow %q to renew the certificate of cluster %q", spec.Username,
			request.Cluster)
	}
	return nil
}
