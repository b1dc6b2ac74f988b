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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
)

// ClusterStatus is a cluster in the output of status. Conditions are True, False, Unknown, or "" where there is none.
type ClusterStatus struct {
	Name     string `json:"name"`
	AuthType string `json:"authType"`
	Claim    string `json:"claim,omitempty"`
	// Accepted is the administrator's decision. Condition reports what the hub has done.
	Accepted bool `json:"accepted"`
	// Deleting says that the cluster is being deleted and has no access. Message then says what keeps it.
	Deleting        bool                   `json:"deleting,omitempty"`
	Condition       metav1.ConditionStatus `json:"condition,omitempty"`
	Reason          string                 `json:"reason,omitempty"`
	Message         string                 `json:"message,omitempty"`
	Joined          metav1.ConditionStatus `json:"joined,omitempty"`
	Available       metav1.ConditionStatus `json:"available,omitempty"`
	Created         metav1.Time            `json:"created"`
	PendingRequests []PendingRequest       `json:"pendingRequests,omitempty"`
}

// PendingRequest is a request that waits for approval. Reason and Message are those of the hub's newest refusal, "" if there is no Event or
// the caller may not list Events.
type PendingRequest struct {
	Name    string `json:"name"`
	User    string `json:"user"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

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
		all, err := statusOf(ctx, hub)
		if err != nil {
			return cli.AnswerOf(err, "list the clusters")
		}
		if len(clusters) > 0 {
			all = slices.DeleteFunc(all, func(c ClusterStatus) bool { return !slices.Contains(clusters, c.Name) })
		}
		return o.Print(cmd, map[string]any{"items": all}, func(w io.Writer) { statusTable(w, all) })
	})
}

func statusOf(ctx context.Context, hub client.Client) (all []ClusterStatus, err error) {
	roles, err := rolesOf(ctx, hub)
	if err != nil {
		return nil, err
	}
	pending, err := csr.Pending(ctx, hub, "")
	if err != nil {
		return nil, err
	}
	refusals, err := refusalsOf(ctx, hub, pending)
	if err != nil {
		return nil, err
	}
	requests := map[string][]PendingRequest{}
	for _, r := range pending {
		no, cluster := refusals[r.UID], r.Labels[ocm.ClusterNameLabel]
		requests[cluster] = append(requests[cluster], PendingRequest{r.Name, r.Spec.Username, fmt.Sprintf("%.100s", cli.OneLine(no.Reason)), fmt.Sprintf("%.1024s", cli.OneLine(no.Note))})
	}
	all = []ClusterStatus{} // not null in JSON
	err = cli.Pages(func(opts ...client.ListOption) (string, error) {
		var clusters ocm.ManagedClusterList
		err := hub.List(ctx, &clusters, opts...)
		for i := range clusters.Items {
			c := &clusters.Items[i]
			all = append(all, statusRow(c, roles[registration.ClusterRoleName(c.Name)], requests[c.Name]))
		}
		return clusters.Continue, err
	})
	slices.SortFunc(all, func(a, b ClusterStatus) int { return strings.Compare(a.Name, b.Name) })
	return all, err
}

// refusalsOf returns the Event of the newest refusal of each pending request by the UID of the request. It has no reason if there is no
// Event, or the caller may not list Events.
func refusalsOf(ctx context.Context, hub client.Client, pending []certificatesv1.CertificateSigningRequest) (map[types.UID]eventsv1.Event, error) {
	newest := map[types.UID]eventsv1.Event{}
	for i := range pending {
		newest[pending[i].UID] = eventsv1.Event{}
	}
	if len(pending) == 0 {
		return newest, nil
	}
	of := client.MatchingFields{"regarding.kind": "CertificateSigningRequest", "type": corev1.EventTypeWarning}
	err := cli.Pages(func(opts ...client.ListOption) (string, error) {
		var list eventsv1.EventList
		err := hub.List(ctx, &list, append(opts, client.InNamespace(metav1.NamespaceDefault), of)...)
		for _, e := range list.Items {
			if known, ok := newest[e.Regarding.UID]; ok && e.Action == csr.ActionApprove && lastSeen(&known).Before(lastSeen(&e)) {
				newest[e.Regarding.UID] = e
			}
		}
		return list.Continue, err
	})
	if apierrors.IsForbidden(err) {
		err = nil
	}
	return newest, err
}

// lastSeen returns when the hub recorded an Event last. The recorder counts repetitions in a series.
func lastSeen(e *eventsv1.Event) *metav1.MicroTime {
	if e.Series != nil {
		return &e.Series.LastObservedTime
	}
	return &e.EventTime
}

// rolesOf returns the ClusterRoles of clusters by name.
func rolesOf(ctx context.Context, hub client.Client) (map[string]*rbacv1.ClusterRole, error) {
	roles := map[string]*rbacv1.ClusterRole{}
	return roles, cli.Pages(func(opts ...client.ListOption) (string, error) {
		var list rbacv1.ClusterRoleList
		err := hub.List(ctx, &list, append(opts, client.HasLabels{ocm.ClusterNameLabel})...)
		for i := range list.Items {
			roles[list.Items[i].Name] = &list.Items[i]
		}
		return list.Continue, err
	})
}

// statusRow returns the row of a cluster. The role is nil if the cluster has none.
func statusRow(c *ocm.ManagedCluster, role *rbacv1.ClusterRole, requests []PendingRequest) ClusterStatus {
	if role == nil {
		role = &rbacv1.ClusterRole{}
	}
	row := ClusterStatus{Name: c.Name, Accepted: c.Spec.HubAcceptsClient, Created: c.CreationTimestamp, PendingRequests: requests}
	var err error
	if row.AuthType, row.Claim, err = claimOf(c, role); err != nil {
		row.AuthType = "invalid"
	}
	accepted := conditionOf(c, ocm.ConditionHubAccepted)
	row.Condition, row.Reason, row.Message = accepted.Status, accepted.Reason, accepted.Message
	if row.Deleting = !c.DeletionTimestamp.IsZero(); row.Deleting {
		row.Message = cmp.Or(conditionOf(c, hub.ConditionDeleting).Message, row.Message)
	}
	row.Joined, row.Available = conditionOf(c, ocm.ConditionJoined).Status, conditionOf(c, ocm.ConditionAvailable).Status
	return row
}

func statusTable(w io.Writer, all []ClusterStatus) {
	if len(all) == 0 {
		cli.Row(w, "no clusters")
		return
	}
	cli.Row(w, "NAME", "AUTH TYPE", "ACCEPTED", "JOINED", "AVAILABLE", "AGE", "PENDING REQUESTS", "CLAIM")
	for _, c := range all {
		if !c.Accepted { // its agent no longer reports
			c.Joined, c.Available = "", ""
		}
		cli.Row(w, c.Name, c.AuthType, c.accepted(), string(cmp.Or(c.Joined, "-")), string(cmp.Or(c.Available, "-")),
			duration.HumanDuration(time.Since(c.Created.Time)), c.pending(), cmp.Or(cli.OneLine(c.Claim), "-"))
	}
}

// pending returns the number of pending requests, with the reasons of their refusals.
func (c *ClusterStatus) pending() string {
	var reasons []string
	for _, r := range c.PendingRequests {
		if r.Reason != "" && !slices.Contains(reasons, r.Reason) {
			reasons = append(reasons, r.Reason)
		}
	}
	if len(reasons) == 0 {
		return strconv.Itoa(len(c.PendingRequests))
	}
	return fmt.Sprintf("%d (%.100s)", len(c.PendingRequests), strings.Join(reasons, ", "))
}

// accepted says what the administrator wants, and the reason if the cluster is not simply accepted.
func (c *ClusterStatus) accepted() string {
	granted, denied := c.Condition == metav1.ConditionTrue, isDenial(metav1.Condition{Status: c.Condition, Reason: c.Reason})
	refused := c.Condition == metav1.ConditionFalse && !denied
	detail := c.Reason
	switch {
	case c.Deleting:
		detail = "deleting"
	case c.Accepted && granted && c.Reason == ocm.ReasonHubAccepted:
		return "true"
	case !c.Accepted && denied:
		detail = "denied"
	case !c.Accepted && (c.Condition == "" || c.Reason == hub.ReasonWaiting):
		detail = "waiting"
	case granted != c.Accepted && !refused:
		detail = "the hub has not acted yet"
	}
	return fmt.Sprintf("%t (%s)", c.Accepted, detail)
}
