package hubadmin

import (
	"cmp"
	"context"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/agentrequest"
	"github.com/workloadid/workloadid/internal/irsaname"
	"github.com/workloadid/workloadid/internal/pages"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

// Cluster is the state of a cluster on the hub. Its conditions are empty if there is none. Reasons and messages are one line of
// printable text.
type Cluster struct {
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

// PendingRequest is a request that waits for approval. Reason and Message are those of the hub's newest refusal, empty if there is no
// Event or the caller may not list Events.
type PendingRequest struct {
	Name    string `json:"name"`
	User    string `json:"user"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Clusters returns the clusters of a hub, sorted by name. The caller may list ManagedClusters, ClusterRoles and
// CertificateSigningRequests.
func Clusters(ctx context.Context, c client.Reader) ([]Cluster, error) {
	roles, err := rolesOf(ctx, c)
	if err != nil {
		return nil, err
	}
	requests, err := requestsOf(ctx, c)
	if err != nil {
		return nil, err
	}
	all := []Cluster{} // not null in JSON
	err = pages.Each(func(opts ...client.ListOption) (string, error) {
		var clusters ocm.ManagedClusterList
		err := c.List(ctx, &clusters, opts...)
		for i := range clusters.Items {
			cluster := &clusters.Items[i]
			all = append(all, stateOf(cluster, roles[registration.ClusterRoleName(cluster.Name)], requests[cluster.Name]))
		}
		return clusters.Continue, err
	})
	slices.SortFunc(all, func(a, b Cluster) int { return strings.Compare(a.Name, b.Name) })
	return all, err
}

// Claim returns the auth type and the claim that the hub grants or would grant: the recorded one of an accepted cluster, otherwise that
// of its annotations. role is the ClusterRole of the cluster, empty if there is none. Certificates have no claim.
func Claim(cluster *ocm.ManagedCluster, role *rbacv1.ClusterRole) (authType, claim string, err error) {
	if authType, ok := role.Annotations[regname.AuthTypeAnnotation]; ok && cluster.Spec.HubAcceptsClient {
		return authType, role.Annotations[regname.ClaimAnnotation], nil
	}
	claim, ok, err := irsaname.Claim(cluster)
	if err != nil || !ok {
		return registration.AuthTypeCSR, "", err
	}
	return registration.AuthTypeAWS, claim, nil
}

// Condition returns a condition of a cluster, empty if there is none. Its reason and message are one line of printable text.
func Condition(cluster *ocm.ManagedCluster, kind string) (c metav1.Condition) {
	if found := meta.FindStatusCondition(cluster.Status.Conditions, kind); found != nil {
		c = *found
		c.Reason, c.Message = redact.Line(c.Reason), redact.Line(c.Message)
	}
	return c
}

func stateOf(c *ocm.ManagedCluster, role *rbacv1.ClusterRole, requests []PendingRequest) Cluster {
	if role == nil {
		role = &rbacv1.ClusterRole{}
	}
	s := Cluster{Name: c.Name, Accepted: c.Spec.HubAcceptsClient, Created: c.CreationTimestamp, PendingRequests: requests}
	var err error
	if s.AuthType, s.Claim, err = Claim(c, role); err != nil {
		s.AuthType = "invalid"
	}
	accepted := Condition(c, ocm.ConditionHubAccepted)
	s.Condition, s.Reason, s.Message = accepted.Status, accepted.Reason, accepted.Message
	if s.Deleting = !c.DeletionTimestamp.IsZero(); s.Deleting {
		s.Message = cmp.Or(Condition(c, regname.ConditionDeleting).Message, s.Message)
	}
	s.Joined, s.Available = Condition(c, ocm.ConditionJoined).Status, Condition(c, ocm.ConditionAvailable).Status
	return s
}

// requestsOf returns the pending requests by cluster.
func requestsOf(ctx context.Context, c client.Reader) (map[string][]PendingRequest, error) {
	pending, err := agentrequest.Pending(ctx, c, "")
	if err != nil {
		return nil, err
	}
	refusals, err := refusalsOf(ctx, c, pending)
	requests := map[string][]PendingRequest{}
	for _, r := range pending {
		refusal, cluster := refusals[r.UID], r.Labels[ocm.ClusterNameLabel]
		requests[cluster] = append(requests[cluster], PendingRequest{r.Name, r.Spec.Username, redact.Text(refusal.Reason), redact.Line(refusal.Note)})
	}
	return requests, err
}

// refusalsOf returns the Event of the newest refusal of each pending request by the UID of the request. It has no reason if there is no
// Event, or the caller may not list Events.
func refusalsOf(ctx context.Context, c client.Reader, pending []certificatesv1.CertificateSigningRequest) (map[types.UID]eventsv1.Event, error) {
	newest := map[types.UID]eventsv1.Event{}
	for i := range pending {
		newest[pending[i].UID] = eventsv1.Event{}
	}
	if len(pending) == 0 {
		return newest, nil
	}
	of := client.MatchingFields{"regarding.kind": "CertificateSigningRequest", "type": corev1.EventTypeWarning}
	err := pages.Each(func(opts ...client.ListOption) (string, error) {
		var list eventsv1.EventList
		err := c.List(ctx, &list, append(opts, client.InNamespace(metav1.NamespaceDefault), of)...)
		for _, e := range list.Items {
			if known, ok := newest[e.Regarding.UID]; ok && e.Action == regname.ActionApprove && lastSeen(&known).Before(lastSeen(&e)) {
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
func rolesOf(ctx context.Context, c client.Reader) (map[string]*rbacv1.ClusterRole, error) {
	roles := map[string]*rbacv1.ClusterRole{}
	return roles, pages.Each(func(opts ...client.ListOption) (string, error) {
		var list rbacv1.ClusterRoleList
		err := c.List(ctx, &list, append(opts, client.HasLabels{ocm.ClusterNameLabel})...)
		for i := range list.Items {
			roles[list.Items[i].Name] = &list.Items[i]
		}
		return list.Continue, err
	})
}
