// Package registration shows how far a managed cluster's registration at a hub
// has come. It shows the state that each part reports: agent, requests, hub,
// Secret, conditions, Lease. It works with hubs and agents of this module and
// of Open Cluster Management.
//
// A part is right or wrong only by a condition, an answer or a time, which its
// line quotes. The doctor uses the agent's credential as the agent does, and
// changes nothing.
package registration

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor/internal/kube"
	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/ocm"
)

// Config says which registration to examine.
type Config struct {
	ClusterName string // of the ManagedCluster
	// Namespace is the agent's. Default: agent.DefaultNamespace.
	Namespace string
	// Hub and Spoke lead to the hub and to the managed cluster. Their schemes
	// need no kinds. Nil: that side is not examined. Only reviews of access are
	// created, at the hub.
	Hub, Spoke client.Client
	// HubFile and SpokeFile lead the commands of remedies to that side. Empty:
	// a context for the reader to fill in.
	HubFile, SpokeFile cli.KubeFile
	Examination        doctor.Examination // with Cluster, Timeout and Progress
}

// examination is one run. The part "sides" reads what several parts show.
type examination struct {
	Config

	deployment string              // of the agent
	cluster    *ocm.ManagedCluster // nil: see clusterErr
	state      registration.State
	roleErr    error // why the claim in state is not known
	clusterErr error
	lease      *coordinationv1.Lease
	requests   []certificateRequest // the newest first
	requestErr error
	own, boot  secret
	used       *use  // of the agent's own credential; nil: not yet
	blind      error // why Events of the part that runs could not be read
}

// Checks returns the parts of Run in their order.
func Checks() []doctor.Check { return (&examination{}).parts() }

// parts are in the order in which a cluster joins. The hub's program comes
// before what it decides.
func (e *examination) parts() []doctor.Check {
	return []doctor.Check{
		{ID: "sides", Title: "the kubeconfigs of hub and cluster", Run: e.showSides},
		{ID: "agent", Title: "the agent's Deployment and Pods", Run: e.ofSpoke(e.showAgent)},
		{ID: "bootstrap", Title: "the bootstrap credential", Run: e.ofSpoke(e.showBootstrap)},
		{ID: "cluster", Title: "the ManagedCluster", Run: e.ofHub(e.showCluster)},
		{ID: "hub", Title: "the hub's program", Run: e.ofHub(e.showProgram)},
		{ID: "requests", Title: "the agent's requests for certificates", Run: e.ofHub(e.showRequests)},
		{ID: "decision", Title: "the hub's decision", Run: e.ofCluster(e.showDecision)},
		{ID: "secret", Title: "the agent's Secret", Run: e.ofSpoke(e.showSecret)},
		{ID: "credential", Title: "the agent's own credential, used as the agent uses it", Run: e.ofSpoke(e.tryCredential)},
		{ID: "conditions", Title: "the conditions of the ManagedCluster", Run: e.ofCluster(e.showConditions)},
		{ID: "lease", Title: "the agent's Lease", Run: e.ofCluster(e.showLease)},
		{ID: "addons", Title: "the credentials of add-ons", Run: e.ofCluster(e.showAddOns)},
		{ID: "aws", Title: "the cluster's role in AWS", Run: e.ofCluster(e.showRole)},
	}
}

// Run examines the registration of a cluster. It is safe for concurrent use.
func Run(ctx context.Context, config Config) *doctor.Report {
	e := &examination{Config: config, deployment: ownAgent}
	e.Namespace = cmp.Or(e.Namespace, agent.DefaultNamespace)
	if e.HubFile == (cli.KubeFile{}) {
		e.HubFile.Context = "HUB"
	}
	if e.SpokeFile == (cli.KubeFile{}) {
		e.SpokeFile.Context = "CLUSTER"
	}
	x := config.Examination
	x.Subject, x.Checks = fmt.Sprintf("registration of cluster %.100s", config.ClusterName), e.parts()
	x.Chain, x.Decisive, x.Secrets = true, "credential", e.secrets
	return doctor.Run(ctx, x)
}

type show = func(context.Context) doctor.Finding

func unread(format string, args ...any) doctor.Finding {
	return doctor.Unclear(doctor.Remedy{}, format, args...)
}

// when runs a part if it can look. A part whose Events cannot be read proves
// nothing.
func (e *examination) when(canLook func() bool, otherwise string, f show) show {
	return func(ctx context.Context) doctor.Finding {
		if !canLook() {
			return unread("%s", otherwise)
		}
		got := f(ctx)
		got, e.blind = kube.Sees(got, e.blind), nil
		return got
	}
}

func (e *examination) ofSpoke(f show) show {
	return e.when(func() bool { return e.Spoke != nil }, "not examined: pass the kubeconfig of the cluster", f)
}

func (e *examination) ofHub(f show) show {
	return e.when(func() bool { return e.Hub != nil }, "not examined: pass the kubeconfig of the hub", f)
}

func (e *examination) ofCluster(f show) show {
	return e.ofHub(e.when(func() bool { return e.cluster != nil }, "the hub shows no ManagedCluster", f))
}

// showSides reads what several parts show, and finds kubeconfigs that were
// mixed up.
func (e *examination) showSides(ctx context.Context) doctor.Finding {
	if errs := validation.IsDNS1123Label(e.ClusterName); len(errs) > 0 {
		return doctor.Failed("InvalidName", doctor.Do("Choose a name of lower-case letters, digits and hyphens."),
			"%.100q cannot be the name of a cluster.", e.ClusterName)
	}
	if e.Spoke != nil {
		e.own, e.boot = e.readSecret(ctx, ocm.HubKubeconfigSecret), e.readSecret(ctx, agent.DefaultBootstrapSecret)
	}
	if e.Hub != nil {
		e.readHub(ctx)
	}
	if kube.Absent(e.clusterErr) {
		mistake := doctor.Do("Pass the hub's own kubeconfig for the hub, and that of the managed cluster for the cluster.")
		return doctor.Failed("WrongKubeconfig", mistake, "The kubeconfig of the hub leads to an API server without "+
			"ManagedClusters: it is no hub, or swapped with the cluster's.").With(time.Now(), time.Time{})
	}
	var sides []string
	if e.Hub != nil {
		sides = append(sides, "the hub")
	}
	if e.Spoke != nil {
		sides = append(sides, "the cluster")
	}
	return doctor.Passed("%s", strings.Join(sides, " and "))
}

func (e *examination) readHub(ctx context.Context) {
	cluster := &ocm.ManagedCluster{}
	if e.clusterErr = kube.Get(ctx, e.Hub, ocm.GroupVersion.WithKind("ManagedCluster"),
		client.ObjectKey{Name: e.ClusterName}, cluster); e.clusterErr != nil {
		cluster = nil
	} else {
		role := &rbacv1.ClusterRole{}
		key := client.ObjectKey{Name: registration.ClusterRoleName(e.ClusterName)}
		e.roleErr = client.IgnoreNotFound(kube.Get(ctx, e.Hub, rbacv1.SchemeGroupVersion.WithKind("ClusterRole"), key, role))
		e.state = registration.StateOf(cluster, role, registration.Claim{})
	}
	e.cluster = cluster
	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: e.ClusterName, Name: ocm.LeaseName}
	if kube.Get(ctx, e.Hub, coordinationv1.SchemeGroupVersion.WithKind("Lease"), key, lease) == nil &&
		lease.Spec.RenewTime != nil {
		e.lease = lease
	}
	e.requests, e.requestErr = kube.List[certificateRequest](ctx, e.Hub,
		certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"),
		client.MatchingLabels{ocm.ClusterNameLabel: e.ClusterName}) // anyone who may create requests chooses the label
	slices.SortStableFunc(e.requests, func(a, b certificateRequest) int {
		return b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
	})
}

// joined returns since when the cluster has joined, the zero time if it has
// not.
func (e *examination) joined() time.Time {
	if e.state.Joined != metav1.ConditionTrue {
		return time.Time{}
	}
	joined := conditionOf(e.cluster.Status.Conditions, ocm.ConditionJoined)
	return kube.Past(joined.LastTransitionTime.Time, e.cluster.CreationTimestamp.Time)
}

// renewed returns when the agent last renewed its Lease. The hub creates the
// Lease before the agent joins. A time in the future comes from a wrong clock.
func (e *examination) renewed() time.Time {
	if e.lease == nil || e.cluster != nil && e.joined().IsZero() {
		return time.Time{}
	}
	return kube.Past(e.lease.Spec.RenewTime.Time, time.Time{})
}

// agentWorked returns when the agent last worked: it renewed its Lease, or
// joined as this ManagedCluster.
func (e *examination) agentWorked() time.Time {
	return slices.MaxFunc([]time.Time{e.renewed(), e.joined()}, time.Time.Compare)
}

// credentialWorked returns when the agent's credential last worked.
func (e *examination) credentialWorked() time.Time {
	if e.used != nil && e.used.taken() {
		return time.Now()
	}
	return e.agentWorked()
}

func conditionOf(conditions []metav1.Condition, kind string) metav1.Condition {
	if c := meta.FindStatusCondition(conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{Type: kind}
}

func quote(c metav1.Condition) string { //nolint:gocritic // a copy
	text := fmt.Sprintf("%.63s=%.10s, %.63s", c.Type, c.Status, c.Reason)
	if c.Message != "" {
		text += fmt.Sprintf(": %.600s", c.Message)
	}
	return text
}

func (e *examination) name() string { return shell.Word(e.ClusterName, "CLUSTER") }

// atHub and inCluster return the remedy of a sentence and commands for one
// side.
func (e *examination) atHub(text string, commands ...string) doctor.Remedy {
	return kube.Do(e.HubFile, "At the hub, "+text, commands...)
}

func (e *examination) inCluster(text string, commands ...string) doctor.Remedy {
	return kube.Do(e.SpokeFile, "In the cluster, "+text, commands...)
}

// The remedies of several parts. The hub prints the command that joins, because
// it knows its address, CA and auth types.
func (e *examination) accept() doctor.Remedy {
	return e.atHub("accept the cluster if it is wanted:", "wid hub accept --clusters "+e.name())
}

func (e *examination) join() doctor.Remedy {
	if e.deployment != ownAgent { // the tools of its hub join it
		return e.inCluster(
			"give the agent of Open Cluster Management a new bootstrap kubeconfig, by the tools of its hub. What its operator says:",
			"kubectl get klusterlets -o yaml")
	}
	return e.atHub("create a token. Run the command that it prints in the cluster:",
		"wid hub token --cluster-name "+e.name())
}

func (e *examination) readLog() doctor.Remedy {
	return e.inCluster("read the agent's log:", "kubectl logs -n "+e.Namespace+" deploy/"+e.deployment)
}

func (e *examination) readCluster(text string) doctor.Remedy {
	return e.atHub(text, "kubectl get managedcluster "+e.name()+" -o yaml")
}

// anotherName is the failure of a name that the agent does not use.
func (e *examination) anotherName(what, name string) doctor.Finding {
	remedy := doctor.Do("Examine the cluster under the name that its agent uses, or correct the name there.")
	return doctor.Failed("AnotherClusterName", remedy, "%s %.100q, not %q.", what, name, e.ClusterName)
}

// action returns the action that a reason of hub or agent names, and else a
// command that looks.
func (e *examination) action(reason string, look doctor.Remedy) doctor.Remedy {
	switch reason {
	case "NotAccepted", "ClusterNotAccepted", ocm.ReasonHubDenied:
		return e.accept()
	case agent.ReasonHubUnreachable, agent.ReasonCredentialRefused:
		return e.join()
	}
	return look
}

// events returns the newest Warning Events of an object of the hub, with the
// remedy of each reason.
func (e *examination) events(ctx context.Context, namespace string, uid types.UID, look doctor.Remedy) []doctor.Event {
	remedy := func(v *corev1.Event) doctor.Remedy { return e.action(v.Reason, look) }
	return e.warnings(ctx, e.Hub, namespace, kube.UID(uid), remedy, nil)
}

// warnings is kube.Warnings, and keeps its error for the part that runs.
func (e *examination) warnings(ctx context.Context, c client.Reader, namespace string, about client.MatchingFields,
	remedy func(*corev1.Event) doctor.Remedy, wanted func(*corev1.Event) bool) []doctor.Event {
	all, err := kube.Warnings(ctx, c, namespace, about, remedy, wanted)
	e.blind = cmp.Or(e.blind, err)
	return all
}

// agentEvents returns the agent's own Events that name a part, "requests",
// "bootstrap" or "agent". All are about its Secret, which may be gone.
func (e *examination) agentEvents(ctx context.Context, part string) []doctor.Event {
	if e.Spoke == nil {
		return nil
	}
	remedy := func(v *corev1.Event) doctor.Remedy { return e.action(v.Reason, e.readLog()) }
	return e.warnings(ctx, e.Spoke, e.Namespace,
		client.MatchingFields{"involvedObject.name": ocm.HubKubeconfigSecret}, remedy,
		func(v *corev1.Event) bool { return named(v.Reason) == part })
}

// named returns the part that a reason of the agent names.
func named(reason string) string {
	switch {
	case strings.HasPrefix(reason, "ClientCertificate"):
		return "requests"
	case reason == agent.ReasonCredentialRefused:
		return "bootstrap"
	}
	return "agent"
}
