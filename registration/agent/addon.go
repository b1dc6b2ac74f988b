package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/internal/transport"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// DefaultAddOnNamespace is the default of [AddOnOptions.Namespace] for an agent
// in [DefaultNamespace].
const DefaultAddOnNamespace = "open-cluster-management-agent-addon"

// AddOnOptions configures [AddOns]. Agent and KubeClient are required.
type AddOnOptions struct {
	// Agent joins the cluster and runs in the same process. The add-ons use its
	// credential once the hub has accepted it, and share its local client,
	// clock, recorder and Registerer.
	Agent *Agent
	// KubeClient is the driver of kubeClient items, whichever driver an item
	// names.
	KubeClient registration.Driver
	// CustomSigner is the driver of customSigner items, and may be the same
	// value. Nil refuses these items.
	CustomSigner registration.Driver
	// Namespace holds the Secrets of add-ons whose status names none. Default:
	// the namespace of the Agent with the suffix "-addon".
	Namespace string
}

// AddOns registers all add-ons of one cluster on its hub, and keeps their
// credentials current. Reconcile requests carry the name of the
// ManagedClusterAddOn. A driver registers each item of the add-on's
// status.registrations:
//
//	item          Secret on the managed cluster          content
//	kubeClient    <add-on>-hub-kubeconfig                kubeconfig, cluster-name, agent-name, auth-type, the driver's files
//	customSigner  <add-on>-<signer, / as ->-client-cert  auth-type, the driver's files
//
// The Secrets lie in the namespace that status.namespace names. Each such
// namespace needs the Role of manifests.AgentAddOnRBAC. The agent labels its
// Secrets with [addon.NameLabel] and the name of the cluster, and never changes
// others. A refused item sets the condition RegistrationAccepted to False. A
// driver's errors become Events of the agent's Secret.
//
// The agent deletes a Secret when the hub removes its item or its add-on. After
// a restart it finds left-over Secrets in [AddOnOptions.Namespace] and in the
// namespaces of other add-ons. It ignores add-ons in hosted mode
// (hostingClusterAnnotation), because the agent of the hosting cluster
// registers them.
//
// The condition Available follows the Lease that the add-on renews on the
// managed cluster, unless status.healthCheck.mode is Customized. The Lease has
// the name of the add-on, and lies in the same namespace as its Secrets.
//
// Set up the Agent and the AddOns with one manager of the managed cluster:
//
//	addOns, err := agent.NewAddOns(agent.AddOnOptions{Agent: joined, KubeClient: driver})
//	...
//	err = addOns.SetupWithManager(mgr, 8)
//
// All methods are safe for concurrent use.
type AddOns struct {
	opts        AddOnOptions
	agent       *Agent
	credentials *prometheus.CounterVec

	hub        atomic.Pointer[addOnHub]
	mu         sync.Mutex                 // is held over no I/O
	namespaces map[string]map[string]bool // by add-on that was requested, the namespaces where it may have Secrets
	health     map[string]addOnHealth     // by add-on, unless another program reports it
	used       map[string]bool            // the namespaces with Secrets, which are watched
	follow     func(namespace string)     // watches another namespace; nil while nothing is watched
}

// addOnHub is a client of the hub that uses the cluster's credential.
type addOnHub struct {
	client.Client
	api     addon.API
	session *hubSession
	look    time.Time // when to ask for the API again, if the hub does not serve it
}

// NewAddOns checks the options. It makes no request.
func NewAddOns(opts AddOnOptions) (*AddOns, error) {
	if opts.Agent == nil || opts.KubeClient == nil {
		return nil, errors.New("add-ons need an Agent and a driver: set AddOnOptions.Agent and AddOnOptions.KubeClient")
	}
	for _, d := range []registration.Driver{opts.KubeClient, opts.CustomSigner} {
		if d == nil {
			continue
		}
		if err := checkDriver(d); err != nil {
			return nil, err
		}
	}
	opts.Namespace = cmp.Or(opts.Namespace, opts.Agent.opts.Namespace+"-addon")
	if err := opts.Agent.checkAddOnNamespace(opts.Namespace); err != nil {
		return nil, err
	}
	credentials := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "registration_agent_addon_credentials_total",
		ConstLabels: prometheus.Labels{"cluster": opts.Agent.opts.Cluster},
		Help:        "Credentials of add-ons, by driver and result: issued, refreshed, or failed for each call of the driver that failed."}, []string{"driver", "result"})
	if r := opts.Agent.opts.Registerer; r != nil {
		if err := r.Register(credentials); err != nil {
			return nil, fmt.Errorf("register the metrics of the add-ons of cluster %q: %w", opts.Agent.opts.Cluster, err)
		}
	}
	return &AddOns{opts: opts, agent: opts.Agent, credentials: credentials,
		namespaces: map[string]map[string]bool{}, health: map[string]addOnHealth{},
		used: map[string]bool{opts.Namespace: true}}, nil
}

// watchingHTTPClient bounds neither time nor size, because a watch stays open
// and begins with all objects.
func watchingHTTPClient(config *rest.Config) (*http.Client, error) {
	config = rest.CopyConfig(config)
	config.Timeout = 0
	c, err := rest.HTTPClientFor(config)
	if err == nil {
		c.CheckRedirect = transport.NoRedirect
	}
	return c, err
}

// Reconcile registers the add-on that the request names. It runs again exactly
// when a driver is due. It waits while the cluster has no access to the hub, or
// the hub does not serve add-ons.
func (a *AddOns) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	due, err := a.reconcile(ctx, req.Name)
	now := a.agent.opts.Now()
	switch {
	case errors.Is(err, errSecretChanged):
		due = now
	case err != nil:
		err = fmt.Errorf("add-on %.100q: %w", req.Name, err)
		a.event(req.Name, "RegistrationFailed", err)
		return reconcile.Result{}, err
	case due.IsZero():
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: max(due.Sub(now), minWait)}, nil
}

// allAddOns represents all add-ons in Events.
const allAddOns = "*"

// event records a warning of an add-on.
func (a *AddOns) event(addOn, reason string, err error) {
	a.agent.events.add(eventKey{addOn, reason}, corev1.EventTypeWarning, err.Error())
}

// reconcile reconciles one add-on, and returns the time at which it is due
// again.
func (a *AddOns) reconcile(ctx context.Context, name string) (time.Time, error) {
	a.remember(name)
	later := a.agent.opts.Now().Add(maxWait)
	hub, err := a.connect()
	if hub == nil {
		return later, err
	}
	addOn := hub.api.New()
	read, cancel := context.WithTimeout(ctx, hubTimeout)
	defer cancel()
	err = hub.Get(read, client.ObjectKey{Namespace: a.agent.opts.Cluster, Name: name}, addOn)
	switch {
	case a.hasVanished(hub, err):
		return later, nil
	case apierrors.IsNotFound(err):
		return time.Time{}, a.forget(ctx, name)
	case err != nil:
		return time.Time{}, fmt.Errorf("read it on the hub: %w", err)
	case addOn.GetAnnotations()[hostingClusterAnnotation] != "":
		a.forgetHealth(name)
		return time.Time{}, nil
	}
	p := &addOnReconcile{AddOns: a, hub: hub, addOn: addOn, status: addon.StatusOf(addOn),
		secrets: map[string]*addOnSecret{}}
	due, err := p.run(ctx)
	if err == nil {
		a.agent.events.forget(name)
	}
	return due, err
}

// noAPIWait is the interval at which the agent asks a hub without add-ons
// again.
const noAPIWait = time.Minute

// connect returns a client of the hub, or nil if there is nothing to do on the
// hub yet. It makes a new client when the cluster's credential is renewed, and
// when the hub's address or CA changes.
func (a *AddOns) connect() (*addOnHub, error) {
	session, _ := a.agent.sessions.get()
	if session == nil {
		return nil, nil
	}
	now := a.agent.opts.Now()
	switch hub := a.hub.Load(); {
	case hub == nil || hub.session != session || !hub.look.IsZero() && !now.Before(hub.look):
	case !hub.look.IsZero():
		return nil, nil
	default:
		return hub, nil
	}
	config := rest.CopyConfig(session.config)
	config.QPS = -1 // the workers bound the requests
	c, err := a.agent.opts.NewHubClient(config)
	if err != nil {
		return nil, err
	}
	hub := &addOnHub{Client: c, session: session}
	hub.api, err = addon.Discover(c.RESTMapper())
	switch {
	case meta.IsNoMatchError(err):
		hub.look = now.Add(noAPIWait)
		a.event(allAddOns, "NoAddOns",
			fmt.Errorf("the hub at %q serves no add-ons: the agent waits for their CustomResourceDefinition there",
				session.hub.Cluster.Server))
		a.hub.Store(hub)
		return nil, nil //nolint:nilerr // the agent waits
	case err != nil:
		return nil, err
	}
	a.agent.events.forget(allAddOns)
	a.hub.Store(hub)
	return hub, nil
}

// hasVanished reports whether the hub has stopped serving the API of add-ons.
// Their absence is then unproven, so no Secret is removed.
func (a *AddOns) hasVanished(hub *addOnHub, err error) bool {
	vanished := meta.IsNoMatchError(err) ||
		apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
	if vanished {
		a.hub.CompareAndSwap(hub, nil)
	}
	return vanished
}
