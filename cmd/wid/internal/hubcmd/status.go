package hubcmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm"
)

func newHubStatus() *cobra.Command {
	s := &cli.Side{}
	var clusters []string
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "List the clusters of the hub, and what each one waits for",
		Example: "  wid hub status\n  wid hub status --clusters managed-0 -o json",
	}
	cmd.Flags().StringSliceVar(&clusters, "clusters", nil, "names of the clusters; all otherwise")
	o := cli.OutputFlag(cmd, "table", "json", "yaml")
	return s.Command(cmd, "the hub", func(ctx context.Context, cmd *cobra.Command) error {
		if len(clusters) > 0 {
			if err := checkClusters(clusters); err != nil {
				return err
			}
		}
		hub, _, err := s.Connect()
		if err != nil {
			return err
		}
		all, err := clustersOf(ctx, hub)
		if err != nil {
			return cli.AnswerOf(err, "list the clusters")
		}
		if len(clusters) > 0 {
			all = slices.DeleteFunc(all, func(c Cluster) bool { return !slices.Contains(clusters, c.Name) })
		}
		return o.Print(cmd, map[string]any{"items": all}, func(w io.Writer) { statusTable(w, all) })
	})
}

func statusTable(w io.Writer, all []Cluster) {
	if len(all) == 0 {
		cli.Row(w, "no clusters")
		return
	}
	cli.Row(w, "NAME", "AUTH TYPE", "ACCEPTED", "JOINED", "AVAILABLE", "AGE", "PENDING REQUESTS", "CLAIM")
	for _, c := range all {
		if !c.Accepted { // its agent no longer reports
			c.Joined, c.Available = "", ""
		}
		cli.Row(w, c.Name, cmp.Or(cli.OneLine(c.AuthType), "-"), accepted(&c),
			string(cmp.Or(c.Joined, "-")), string(cmp.Or(c.Available, "-")),
			duration.HumanDuration(time.Since(c.Created.Time)), requests(&c), cmp.Or(cli.OneLine(c.Claim), "-"))
	}
	for _, c := range all {
		if c.Unreadable != "" {
			cli.Row(w, unreadable(c.Name, c.Unreadable))
		}
	}
}

// unreadable says what of a ManagedCluster cannot be decoded, and what to do.
func unreadable(name, value string) string {
	return fmt.Sprintf(
		"cluster %q: a value of the ManagedCluster cannot be read: %s. Correct it with kubectl edit managedcluster %[1]s, "+
			"and --subresource status if it is in the status", name, value)
}

// requests returns the number of pending requests, with the reasons of their
// refusals, and the number of denied ones.
func requests(c *Cluster) string {
	var reasons []string
	for _, r := range c.PendingRequests {
		if r.Reason != "" && !slices.Contains(reasons, r.Reason) {
			reasons = append(reasons, r.Reason)
		}
	}
	text := strconv.Itoa(len(c.PendingRequests))
	if len(reasons) > 0 {
		text += fmt.Sprintf(" (%.100s)", strings.Join(reasons, ", "))
	}
	if len(c.DeniedRequests) > 0 {
		text += fmt.Sprintf(", %d denied", len(c.DeniedRequests))
	}
	return text
}

// accepted says what the administrator wants, and the reason if the cluster is
// not simply accepted.
func accepted(c *Cluster) string {
	detail := c.Reason
	switch {
	case c.Deleting:
		detail = "deleting"
	case !c.Acted:
		detail = "the hub has not acted yet"
	case c.Reason == ocm.ReasonHubAccepted && c.Failure == "":
		return "true"
	case c.Stage == registration.StageDenied:
		detail = "denied"
	case c.Stage == registration.StagePending:
		detail = "waiting"
	}
	if c.Failure != "" {
		detail += fmt.Sprintf("; error: %.200s", c.Failure)
	}
	return fmt.Sprintf("%t (%s)", c.Accepted, detail)
}

// Cluster is the state of a cluster on the hub. Its conditions are empty if
// there is none. Reasons and messages are one line of printable text.
type Cluster struct {
	Name string `json:"name"`
	// AuthType and Claim are those that the hub grants, empty if the hub
	// refuses the claim or has not read it yet.
	AuthType string `json:"authType"`
	Claim    string `json:"claim,omitempty"`
	// Stage is how far the hub has come. Acted reports whether it has acted on
	// the last decision, or has read the claim of a cluster that waits for one.
	Stage registration.Stage `json:"stage"`
	Acted bool               `json:"acted"`
	// Accepted is the administrator's decision. Condition reports what the hub
	// has done.
	Accepted bool `json:"accepted"`
	// Deleting says that the cluster is being deleted and has no access.
	// Message then says what keeps it.
	Deleting  bool                   `json:"deleting,omitempty"`
	Condition metav1.ConditionStatus `json:"condition,omitempty"`
	Reason    string                 `json:"reason,omitempty"`
	Message   string                 `json:"message,omitempty"`
	// Failure is the error that the hub met last and retries, empty if there is
	// none.
	Failure   string                 `json:"failure,omitempty"`
	Joined    metav1.ConditionStatus `json:"joined,omitempty"`
	Available metav1.ConditionStatus `json:"available,omitempty"`
	Created   metav1.Time            `json:"created"`
	// Unreadable quotes a value of the ManagedCluster that Go cannot decode.
	Unreadable      string         `json:"unreadable,omitempty"`
	PendingRequests []AgentRequest `json:"pendingRequests,omitempty"`
	// DeniedRequests stay about an hour. Kubernetes then deletes them.
	DeniedRequests []AgentRequest `json:"deniedRequests,omitempty"`
}

// AgentRequest is a request for a certificate that waits for approval or was
// denied. Reason and Message come from the denial, or from the hub's newest
// refusal. They are empty without an Event, or if the caller may not list
// Events.
type AgentRequest struct {
	Name    string `json:"name"`
	User    string `json:"user"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// clustersOf returns the clusters of a hub, sorted by name. The caller may list
// ManagedClusters, ClusterRoles and CertificateSigningRequests. The reader must
// not be a cache, because it reads page by page.
func clustersOf(ctx context.Context, c client.Reader) ([]Cluster, error) {
	roles, err := rolesOf(ctx, c)
	if err != nil {
		return nil, err
	}
	pending, denied, err := requestsOf(ctx, c)
	if err != nil {
		return nil, err
	}
	all := []Cluster{} // not null in JSON
	err = cli.Each(ctx, c, &ocm.ManagedClusterList{}, func(cluster *ocm.ManagedCluster) {
		role := roles[registration.ClusterRoleName(cluster.Name)]
		all = append(all, clusterOf(cluster, role, pending[cluster.Name], denied[cluster.Name]))
	})
	slices.SortFunc(all, func(a, b Cluster) int { return strings.Compare(a.Name, b.Name) })
	return all, err
}

// conditionOf returns a condition of a cluster, empty if there is none. Its
// reason and message are one line of printable text.
func conditionOf(cluster *ocm.ManagedCluster, kind string) (c metav1.Condition) {
	if found := meta.FindStatusCondition(cluster.Status.Conditions, kind); found != nil {
		c = *found
		c.Reason, c.Message = redact.Line(c.Reason), redact.Line(c.Message)
	}
	return c
}

// stateOf returns the state of a cluster, with texts of one printable line.
func stateOf(c *ocm.ManagedCluster, role *rbacv1.ClusterRole) registration.State {
	s := registration.StateOf(c, role, registration.Claim{})
	s.Reason, s.Message, s.Failure = redact.Line(s.Reason), redact.Line(s.Message), redact.Line(s.Failure)
	return s
}

func clusterOf(c *ocm.ManagedCluster, role *rbacv1.ClusterRole, pending, denied []AgentRequest) Cluster {
	s, isDeleting := stateOf(c, role), !c.DeletionTimestamp.IsZero()
	if isDeleting {
		s.Message = cmp.Or(conditionOf(c, ocm.ConditionDeleting).Message, s.Message)
	}
	return Cluster{Name: c.Name, AuthType: s.Claim.AuthType, Claim: s.Claim.Value, Stage: s.Stage, Acted: s.Acted,
		Accepted: c.Spec.HubAcceptsClient, Deleting: isDeleting,
		Condition: conditionOf(c, ocm.ConditionHubAccepted).Status, Reason: s.Reason, Message: s.Message, Failure: s.Failure,
		Joined: s.Joined, Available: s.Available, Created: c.CreationTimestamp, Unreadable: redact.Line(c.Unreadable),
		PendingRequests: pending, DeniedRequests: denied}
}

func requestsOf(ctx context.Context, c client.Reader) (pending, denied map[string][]AgentRequest, err error) {
	all, err := csr.List(ctx, c, "", func(r *csr.Request) bool { return r.IsPending() || denialOf(r) != nil })
	if err != nil {
		return nil, nil, err
	}
	refusals, err := refusalsOf(ctx, c, all)
	pending, denied = map[string][]AgentRequest{}, map[string][]AgentRequest{}
	for _, r := range all {
		shown := AgentRequest{Name: r.Object.Name, User: r.Object.Spec.Username}
		if d := denialOf(r); d != nil {
			shown.Reason, shown.Message = redact.Text(d.Reason), redact.Line(d.Message)
			denied[r.Cluster] = append(denied[r.Cluster], shown)
			continue
		}
		refusal := refusals[r.Object.UID]
		shown.Reason, shown.Message = redact.Text(refusal.Reason), redact.Line(refusal.Note)
		pending[r.Cluster] = append(pending[r.Cluster], shown)
	}
	return pending, denied, err
}

// denialOf returns the denial of a request, nil if there is none.
func denialOf(r *csr.Request) *certificatesv1.CertificateSigningRequestCondition {
	if c := r.Refusal(); c != nil && c.Type == certificatesv1.CertificateDenied {
		return c
	}
	return nil
}

// refusalsOf returns the Event of the newest refusal of each pending request by
// the UID of the request. It has no reason without an Event, or if the caller
// may not list Events.
func refusalsOf(ctx context.Context, c client.Reader, requests []*csr.Request) (map[types.UID]eventsv1.Event, error) {
	newest := map[types.UID]eventsv1.Event{}
	for _, r := range requests {
		if denialOf(r) == nil {
			newest[r.Object.UID] = eventsv1.Event{}
		}
	}
	if len(newest) == 0 {
		return newest, nil
	}
	of := client.MatchingFields{"regarding.kind": "CertificateSigningRequest", "type": corev1.EventTypeWarning}
	err := cli.Each(ctx, c, &eventsv1.EventList{}, func(e *eventsv1.Event) {
		known, ok := newest[e.Regarding.UID]
		if ok && e.Action == ocm.ActionApprove && lastSeen(&known).Before(lastSeen(e)) {
			newest[e.Regarding.UID] = *e
		}
	}, client.InNamespace(metav1.NamespaceDefault), of)
	if apierrors.IsForbidden(err) {
		err = nil
	}
	return newest, err
}

// lastSeen returns when the hub recorded an Event last. The recorder counts
// repetitions in a series.
func lastSeen(e *eventsv1.Event) *metav1.MicroTime {
	if e.Series != nil {
		return &e.Series.LastObservedTime
	}
	return &e.EventTime
}

func rolesOf(ctx context.Context, c client.Reader) (map[string]*rbacv1.ClusterRole, error) {
	roles := map[string]*rbacv1.ClusterRole{}
	return roles, cli.Each(ctx, c, &rbacv1.ClusterRoleList{}, func(role *rbacv1.ClusterRole) {
		roles[role.Name] = role
	}, client.HasLabels{ocm.ClusterNameLabel})
}
