// Package registration finds out why a managed cluster does not join its hub, or why its agent or add-ons have no credential. It
// examines hubs and agents of this module and those of Open Cluster Management alike.
//
//	report := registration.Run(ctx, registration.Config{ClusterName: "cluster1", Hub: hub, Spoke: spoke})
//	fmt.Print(report)
//
// Give it the kubeconfig of one side or of both. It changes nothing, and shows of Secrets names and keys alone. Where a condition or an
// Event says the cause, its reason is the class of the finding. docs/doctor.md lists the reasons.
package registration

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/kube"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/ocm"
)

// Config says which registration to examine.
type Config struct {
	// ClusterName is the name of the ManagedCluster. Required.
	ClusterName string
	// Hub and Spoke read from the hub and from the managed cluster. Their schemes need no kinds. Nil: that side is not examined.
	Hub, Spoke client.Reader
	// Klusterlet is the name of the Klusterlet. Empty: the one that registers ClusterName, or else the only one.
	Klusterlet string
	// HubClusterARN is the hub's own ARN in EKS, for the remedies of a registration by AWS IAM.
	HubClusterARN string
	// HubFlags and SpokeFlags lead kubectl and wid to that side: "--context hub". Remedies have them in their commands. Empty: a context
	// for the reader to fill in.
	HubFlags, SpokeFlags string
	// Cluster, Skip, Timeout and Progress are those of doctor.Examination.
	Cluster  string
	Skip     []string
	Timeout  time.Duration
	Progress func(doctor.Check)
}

// examination is one run. Checks leave here what later ones need.
type examination struct {
	Config

	hub, spoke     kube.Side
	cluster        *ocm.ManagedCluster // nil: there is none, or it could not be read
	klusterlet     *klusterlet         // nil: there is none, or it could not be read
	agentNamespace string
	deployment     string            // of the agent
	named          bool              // the agent is configured with ClusterName
	boot           map[string][]byte // the bootstrap Secret, nil: there is none, or it was not read
	lost           bool              // the agent's own Secret is missing or has no kubeconfig
	accepted       bool              // the check "accept" passed
	requests       []certificateRequest
	requestsErr    error
	claim          string // of an AWS role
}

// Checks returns the checks of Run in their order.
func Checks() []doctor.Check { return (&examination{}).checks() }

// checks have causes before symptoms: the agent, the people at the hub, then the results of both.
func (e *examination) checks() []doctor.Check {
	after := func(ids ...string) []string { return ids }
	return []doctor.Check{
		{ID: "sides", Title: "the kubeconfigs of hub and cluster", Run: e.checkSides},
		{ID: "agent", Title: "the agent and its way to the hub", Needs: after("sides"), Run: e.checkAgent},
		{ID: "hub", Title: "the ManagedCluster", Needs: after("sides", "agent"), Run: e.checkHub},
		{ID: "claim", Title: "the cluster's claim of an AWS role", Needs: after("hub"), Run: e.withCluster(e.checkClaim)},
		{ID: "accept", Title: "the acceptance by the hub", Needs: after("hub", "claim"), Run: e.withCluster(e.checkAccepted)},
		{ID: "csr", Title: "the agent's requests for certificates", Needs: after("hub", "accept"), Run: e.withCluster(e.checkRequests)},
		{ID: "secret", Title: "the agent's Secrets", Needs: after("agent", "csr", "accept"), Run: e.checkSecrets},
		{ID: "credential", Title: "the agent's own credential", Needs: after("secret"), Run: e.checkCredential},
		{ID: "joined", Title: "the join of the agent, and the clocks of hub and cluster", Needs: after("csr", "accept", "credential"), Run: e.withCluster(e.checkJoined)},
		{ID: "lease", Title: "the agent's Lease", Needs: after("joined", "secret"), Run: e.withCluster(e.checkLease)},
		{ID: "addons", Title: "the credentials of add-ons", Needs: after("hub", "accept"), Run: e.withCluster(e.checkAddOns)},
		{ID: "aws", Title: "the cluster's role in AWS", Needs: after("claim", "accept"), Run: e.withCluster(e.checkRole)},
	}
}

func newExamination(config Config) *examination {
	return &examination{Config: config, agentNamespace: agent.DefaultNamespace, deployment: ownAgent,
		hub:   kube.Side{Flags: cmp.Or(config.HubFlags, "--context HUB"), Examined: config.Hub != nil},
		spoke: kube.Side{Flags: cmp.Or(config.SpokeFlags, "--context CLUSTER"), Examined: config.Spoke != nil}}
}

// Run examines the registration of a cluster. It is safe for concurrent use.
func Run(ctx context.Context, config Config) *doctor.Report {
	e := newExamination(config)
	return doctor.Run(ctx, doctor.Examination{Subject: fmt.Sprintf("registration of cluster %.100s", config.ClusterName), Cluster: config.Cluster,
		Checks: e.checks(), Decisive: "lease", Skip: config.Skip, Timeout: config.Timeout, Progress: config.Progress})
}

// withCluster skips a check if there is no ManagedCluster.
func (e *examination) withCluster(check func(context.Context) doctor.Finding) func(context.Context) doctor.Finding {
	return func(ctx context.Context) doctor.Finding {
		if e.cluster == nil {
			return doctor.Skipped("There is no ManagedCluster to examine.")
		}
		return check(ctx)
	}
}

// condition returns a condition of the ManagedCluster. The zero value means that there is none.
func (e *examination) condition(kind string) metav1.Condition {
	return conditionOf(e.cluster.Status.Conditions, kind)
}

func conditionOf(conditions []metav1.Condition, kind string) metav1.Condition {
	if c := meta.FindStatusCondition(conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{Type: kind}
}

// said adds to the message what a condition or an Event says.
func said(f doctor.Finding, reason, message string) doctor.Finding {
	f.Message = strings.TrimSuffix(f.Message, ".")
	if reason != "" && reason != f.Class {
		f.Message += fmt.Sprintf(" (%.60s)", reason)
	}
	if message != "" {
		f.Message += ": " + strings.TrimSuffix(redact.Text(message), ".") // which marks a cut
	}
	f.Message += "."
	return f
}

// refused is the finding of a condition that should be true. Its reason is the class, if it has a remedy.
func (e *examination) refused(o object, c metav1.Condition, otherwise, format string, args ...any) doctor.Finding {
	return said(e.faultOf(o, e.known(c.Reason, otherwise), format, args...), c.Reason, c.Message)
}

func (e *examination) readCluster(ctx context.Context) (*ocm.ManagedCluster, error) {
	cluster := &ocm.ManagedCluster{}
	return cluster, kube.Get(ctx, e.Hub, ocm.GroupVersion.WithKind("ManagedCluster"), client.ObjectKey{Name: e.ClusterName}, cluster)
}

// checkSides finds kubeconfigs that were mixed up. Its remedies never make a hub of a managed cluster.
func (e *examination) checkSides(ctx context.Context) doctor.Finding {
	switch errs := validation.IsDNS1123Label(e.ClusterName); {
	case len(errs) > 0:
		return e.fault("InvalidName", "%.100q cannot be the name of a cluster.", e.ClusterName)
	case e.Hub == nil:
		return doctor.Skipped("There is no kubeconfig of the hub.")
	}
	switch _, err := e.readCluster(ctx); {
	case ctx.Err() != nil: // there may be no time for the check "hub"
		return e.unreadCluster(err)
	case !kube.Absent(err) && client.IgnoreNotFound(err) != nil:
		return doctor.Skipped("The hub does not show the ManagedCluster.")
	case !kube.Absent(err):
		return doctor.Passed("The kubeconfig of the hub leads to a hub.")
	}
	return e.fault("WrongKubeconfig", "The kubeconfig of the hub does not lead to a hub, or is swapped with the cluster's: the API server has no ManagedClusters.")
}
