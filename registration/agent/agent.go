package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/internal/optimistic"
	"github.com/workloadid/workloadid/internal/tracing"
	"github.com/workloadid/workloadid/internal/transport"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/kubeconfig"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// Defaults of Options.
const (
	DefaultNamespace       = "open-cluster-management-agent"
	DefaultBootstrapSecret = "bootstrap-hub-kubeconfig"
)

// Reasons of the Warning Events about a hub that the agent cannot use.
const (
	// ReasonHubUnreachable means that the hub does not answer at the address in
	// the bootstrap Secret, or that the server there cannot prove to be the
	// hub.
	ReasonHubUnreachable = "HubUnreachable"
	// ReasonCredentialRefused means that the hub refuses the bootstrap
	// credential, or that no bootstrap credential exists.
	ReasonCredentialRefused = "BootstrapCredentialRefused"
	// ReasonOwnCredentialRefused means that the hub refuses the agent's own
	// credential, such as a certificate that is not valid at the hub's time.
	// The agent requests a new one.
	ReasonOwnCredentialRefused = "CredentialRefused"
	// ReasonFailed means any other failure, such as a webhook of the hub that
	// refuses the ManagedCluster.
	ReasonFailed = "RegistrationFailed"
)

// Options configures an Agent. Cluster, Driver and Local are required.
type Options struct {
	// Cluster is the name of the managed cluster, a DNS label.
	Cluster string
	// Driver gets the cluster its credential.
	Driver registration.Driver
	// Local reads and writes the two Secrets on the managed cluster. Use a
	// client without a cache, such as client.New returns: a cache would watch
	// all Secrets of the cluster.
	Local client.Client
	// Namespace holds the two Secrets. Default: DefaultNamespace.
	Namespace string
	// BootstrapSecret holds the hub's address, its CA and the bootstrap
	// credential under the key "kubeconfig". The agent reads it on each
	// reconcile, and always takes address and CA from it. A joined cluster
	// needs no user in it. Default: DefaultBootstrapSecret.
	BootstrapSecret string
	// Version returns the version of the managed cluster's API server. If it
	// fails, the agent reports the cluster as unavailable. Nil reports no
	// version, and the cluster as available while the agent runs.
	Version func(context.Context) (string, error)
	// ClusterStatus reports the capacity and the allocatable resources of the
	// cluster's nodes, and its ClusterClaims, to the hub whenever the Lease is
	// due. It needs the rights of manifests.AgentStatusRBAC. SetupWithManager
	// watches the nodes. False leaves what the hub has.
	ClusterStatus bool
	// NewHubClient returns a client of the hub, without making a request.
	// AddOns and drivers use it too. Default: client.New with the kinds of
	// Kubernetes, ocm and addon.
	NewHubClient func(*rest.Config) (client.Client, error)
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Recorder records Events of the agent's Secret. Nil records none.
	Recorder events.EventRecorder
	// Registerer takes the metrics. Nil drops them.
	Registerer prometheus.Registerer
	// TracerProvider takes an OpenTelemetry span "next" of each call of a
	// driver, of add-ons too. Nil records none.
	TracerProvider trace.TracerProvider
}

// Agent joins one managed cluster to a hub, renews its credential, and reports
// that the cluster is alive. Calls of Reconcile must not overlap. All other
// methods are safe for concurrent use.
type Agent struct {
	opts    Options
	metrics *agentMetrics

	// The state of Reconcile. Losing it in a restart costs a client and an
	// Event.
	own, bootstrap agentClient
	waited         int  // reconciles since the agent began to wait
	failed         bool // the last reconcile
	overdue        bool // the Lease, since a reconcile has failed: its renewal ends the failure

	events   *eventLog
	sessions hubSessions   // for the add-ons
	nodes    client.Reader // of the managed cluster
}

// New checks the options. It makes no request.
func New(opts Options) (*Agent, error) {
	if err := registration.CheckClusterName(opts.Cluster); err != nil {
		return nil, err
	}
	if opts.Driver == nil || opts.Local == nil {
		return nil,
			errors.New(
				"an agent needs a Driver and a client of the managed cluster: set agent.Options.Driver and agent.Options.Local")
	}
	if err := checkDriver(opts.Driver); err != nil {
		return nil, err
	}
	opts.Namespace = cmp.Or(opts.Namespace, DefaultNamespace)
	opts.BootstrapSecret = cmp.Or(opts.BootstrapSecret, DefaultBootstrapSecret)
	if opts.BootstrapSecret == ocm.HubKubeconfigSecret {
		return nil, fmt.Errorf("the Secret %q cannot hold both the bootstrap credential and the agent's own: use two names",
			ocm.HubKubeconfigSecret)
	}
	if opts.NewHubClient == nil {
		opts.NewHubClient = newHubClient
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	metrics, err := newAgentMetrics(opts.Cluster, opts.Registerer)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: opts.Namespace, Name: ocm.HubKubeconfigSecret}}
	return &Agent{opts: opts, metrics: metrics, nodes: opts.Local,
		events: &eventLog{recorder: opts.Recorder, secret: secret, now: opts.Now, last: map[eventKey]lastEvent{}}}, err
}

// checkDriver refuses a name that cannot be part of a key of a Secret.
func checkDriver(d registration.Driver) error {
	if name := d.Name(); len(validation.IsDNS1123Label(name)) > 0 {
		return fmt.Errorf("the driver name %.100q is not a DNS label: it is part of keys of a Secret", name)
	}
	return nil
}

// newHubClient returns a client that sends its credential to the hub only, and
// reads bounded answers.
func newHubClient(config *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), ocm.AddToScheme(scheme),
		addon.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: scheme, HTTPClient: transport.Guard(httpClient)})
}

const (
	// hubTimeout bounds each request to the hub, and each call of a driver.
	hubTimeout       = kubeconfig.Timeout
	minWait, maxWait = time.Second, 30 * time.Second
	// maxSteps bounds the steps of one reconcile, in case a driver stores new
	// content each time.
	maxSteps = 8
)

// Reconcile ignores the content of the request. While the cluster waits for
// acceptance, the next reconcile follows after 1 s, doubling to 30 s. Later it
// follows when the Lease or the driver is due.
func (a *Agent) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	due, joined, err := a.reconcile(ctx)
	a.metrics.observe(joined, err)
	switch {
	case errors.Is(err, errSecretChanged):
		return reconcile.Result{RequeueAfter: minWait}, nil
	case err != nil:
		a.failed, a.overdue = true, true
		a.event(corev1.EventTypeWarning, reasonOf(err), err.Error())
		return reconcile.Result{}, err
	case a.failed: // otherwise the wait would look older than the failure
		a.failed = false
		a.events.forget("")
	}
	now := a.opts.Now()
	if joined {
		a.waited = 0
	} else {
		if poll := now.Add(min(minWait<<min(a.waited, 5), maxWait)); due.IsZero() || poll.Before(due) {
			due = poll
		}
		a.waited++
	}
	return reconcile.Result{RequeueAfter: max(due.Sub(now), minWait)}, nil
}

// reconcile takes steps until the Secret stops changing.
func (a *Agent) reconcile(ctx context.Context) (due time.Time, joined bool, err error) {
	hub, err := a.readBootstrap(ctx)
	if err != nil {
		return due, false, err
	}
	secret, err := a.readSecret(ctx)
	if err != nil {
		return due, false, err
	}
	for range maxSteps {
		conn, err := a.connect(ctx, hub, secret)
		if err != nil || conn == nil {
			return due, false, err
		}
		if a.ensureNames(secret) {
			if err := secret.write(ctx); err != nil {
				return due, false, err
			}
			continue
		}
		changed, at, stepErr := a.step(ctx, hub, secret, conn)
		if changed && stepErr == nil {
			a.waited = 0
			continue
		}
		if !conn.own {
			return at, false, stepErr
		}
		// The heartbeat continues even if the driver fails.
		due, joined, err = a.heartbeat(ctx, conn)
		if !at.IsZero() && (due.IsZero() || at.Before(due)) {
			due = at
		}
		return due, joined, errors.Join(stepErr, err)
	}
	return due, false, fmt.Errorf("driver %q stores something else at every call: the agent stopped after %d",
		a.opts.Driver.Name(), maxSteps)
}

// step calls the driver, stores its Step, and only then reports its condition.
func (a *Agent) step(ctx context.Context, hub *kubeconfig.Hub, secret *credentialSecret,
	conn *agentConn) (changed bool, at time.Time, err error) {
	next, cancel := context.WithTimeout(ctx, hubTimeout) // a driver that hangs must not delay the Lease
	defer cancel()
	step, err := a.next(next, a.opts.Driver,
		registration.Input{Now: a.opts.Now(), Cluster: a.opts.Cluster, Agent: secret.agent,
			Stored: conn.stored, State: secret.state(), Hub: conn.Client,
			Conditions: conn.cluster.Status.Conditions, Annotations: conn.cluster.Annotations})
	if err != nil {
		return false, at, fmt.Errorf("driver %q: %w", a.opts.Driver.Name(), err)
	}
	changed, err = secret.store(hub, step)
	if err == nil && changed {
		err = secret.write(ctx)
	}
	if err != nil {
		return false, at, err
	}
	if changed && step.Credential != nil {
		a.metrics.credentials.Inc()
	}
	return changed, step.At, a.reportCondition(ctx, conn, step.Condition)
}

// next calls a driver.
func (a *Agent) next(ctx context.Context, driver registration.Driver,
	in registration.Input) (step registration.Step, err error) {
	ctx, span := tracing.Start(ctx, a.opts.TracerProvider, "registration/agent", "next",
		tracing.Cluster.String(in.Cluster), tracing.AddOn.String(in.Addon), tracing.Driver.String(driver.Name()))
	defer func() { tracing.End(span, err, "failure") }()
	return driver.Next(ctx, in)
}

// reportCondition sets the driver's condition. While the cluster cannot write
// its status, it records an Event instead.
func (a *Agent) reportCondition(ctx context.Context, conn *agentConn, condition *metav1.Condition) error {
	switch {
	case condition == nil:
		return nil
	case conn.own:
		c := *condition
		c.ObservedGeneration = conn.cluster.Generation
		return ignoreRefused(optimistic.PatchStatus(ctx, conn, conn.cluster, func() bool {
			return ocm.SetCondition(&conn.cluster.Status.Conditions, c)
		}))
	}
	kind := corev1.EventTypeNormal
	if condition.Status == metav1.ConditionFalse {
		kind = corev1.EventTypeWarning
	}
	a.event(kind, condition.Reason, condition.Message)
	return nil
}

// event records an Event of the cluster's own registration.
func (a *Agent) event(kind, reason, message string) {
	a.events.add(eventKey{reason: reason}, kind, message)
}

// HubConfig returns a configuration with the stored credential, for clients in
// this process. It expires with the credential: call HubConfig again when the
// Secret has changed. It fails with [ErrNotJoined] while no credential is
// stored.
func (a *Agent) HubConfig(ctx context.Context) (*rest.Config, error) {
	hub, err := a.readBootstrap(ctx)
	if err != nil {
		return nil, err
	}
	secret, err := a.readSecret(ctx)
	if err != nil {
		return nil, err
	}
	config, _, err := secret.open(ctx, hub)
	return config, err
}

// ErrNotJoined reports that the cluster has no usable credential of its own.
var ErrNotJoined = errors.New("the cluster has not joined the hub: have it accepted there")

// Unjoin withdraws the cluster's acceptance on the hub. The hub then revokes
// all its access. Unjoin is idempotent.
func (a *Agent) Unjoin(ctx context.Context) error {
	config, err := a.HubConfig(ctx)
	if err != nil {
		return err
	}
	hub, err := a.opts.NewHubClient(config)
	if err != nil {
		return err
	}
	err = optimistic.Write(ctx, apierrors.IsConflict, func() error { return withdraw(ctx, hub, a.opts.Cluster) })
	switch {
	case apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err):
		return fmt.Errorf("the hub at %q refuses the credential of cluster %q; to remove the cluster, deny it there: %w",
			config.Host, a.opts.Cluster, err)
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("withdraw cluster %q from the hub at %q: %w", a.opts.Cluster, config.Host, err)
	}
	return nil
}

// withdraw sets hubAcceptsClient to false. Hubs of Open Cluster Management let
// agents update their ManagedCluster, but not patch it. There it updates the
// whole object, so fields of newer versions survive.
func withdraw(ctx context.Context, hub client.Client, name string) error {
	cluster := &unstructured.Unstructured{}
	cluster.SetGroupVersionKind(ocm.GroupVersion.WithKind("ManagedCluster"))
	if err := hub.Get(ctx, client.ObjectKey{Name: name}, cluster); err != nil {
		return err
	}
	if accepted, _, err := unstructured.NestedBool(cluster.Object, "spec", "hubAcceptsClient"); err != nil || !accepted {
		return err
	}
	base := cluster.DeepCopy()
	if err := unstructured.SetNestedField(cluster.Object, false, "spec", "hubAcceptsClient"); err != nil {
		return err
	}
	refused := hub.Patch(ctx, cluster, client.MergeFrom(base))
	if !apierrors.IsForbidden(refused) {
		return refused
	}
	if err := hub.Update(ctx, cluster); err != nil {
		return fmt.Errorf("%w; %w", refused, err)
	}
	return nil
}
