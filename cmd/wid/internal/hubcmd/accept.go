package hubcmd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm"
)

func newHubAccept() *cobra.Command {
	d := &deciding{accepts: true}
	cmd := d.command(d.accept, &cobra.Command{
		Use:   "accept",
		Short: "Let clusters join the hub, and approve the requests of their agents for a certificate",
		Long: "Let clusters join the hub. It shows the claim of each cluster, accepts exactly that, and approves the one pending\n" +
			"request of a bootstrap user. It approves none of several requests. To replace the agent of a cluster, or the certificate\n" +
			"that the agent lost, name its request with --approve-request. At a terminal it asks before it accepts, unless --claim names\n" +
			"the claim.",
		Example: "  wid hub accept --clusters managed-0,managed-1 --wait\n" +
			"  wid hub accept --clusters managed-2 --claim arn:aws:eks:eu-west-1:222222222222:cluster/shop",
	}, "wait until the clusters have joined, also for those that have not asked yet")
	f := cmd.Flags()
	f.StringVar(&d.approves, "approve-request", "",
		"name of the request to approve: one of several, of another user than bootstrap users, or for a cluster that has an agent already, which the hub then no longer renews")
	f.StringVar(&d.claim, "claim", "", "claim that the cluster must have, such as its ARN; "+cli.None+" for certificates")
	return cmd
}

type acceptance struct {
	*deciding
	cluster      *ocm.ManagedCluster
	claim        registration.Claim
	request      *csr.Request // nil if there is none
	approved     bool
	joinedBefore bool
	lease        string // its version before, if the cluster joined before
}

func (d *deciding) accept(ctx context.Context, cluster *ocm.ManagedCluster) error {
	a := &acceptance{deciding: d, cluster: cluster}
	// A hub with bootstrap users approves all their requests once the cluster
	// is accepted, so the request is read before that.
	for _, step := range []func(context.Context) error{a.show, a.checkClaim, a.readLease, a.readRequest, a.ask, a.allow} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return cli.Await(ctx, d.cmd, func() (string, error) { return a.proceed(ctx) })
}

// show reads the claim together with the cluster: a claim that changes later
// makes the acceptance fail.
func (a *acceptance) show(ctx context.Context) error {
	if err := cli.Await(ctx, a.cmd, func() (string, error) { return a.readClaim(ctx) }); err != nil {
		return err
	}
	return cli.Say(a.cmd, "cluster %q: %s", a.cluster.Name, a.claim)
}

// readClaim waits for the hub to read the claim, which only its drivers can.
func (a *acceptance) readClaim(ctx context.Context) (waitingFor string, err error) {
	name := a.cluster.Name
	if a.cluster, err = a.read(ctx, name); err != nil {
		return "", err
	}
	role, err := registration.GetClusterRole(ctx, a.hub, name)
	if err != nil {
		return "", cli.AnswerOf(err, fmt.Sprintf("read the ClusterRole of cluster %q", name))
	}
	s := stateOf(a.cluster, role)
	a.claim = s.Claim
	recorded, ok := registration.RecordedClaim(role)
	switch {
	case a.claim.AuthType == "" && s.Stage == registration.StageRefused:
		return "", a.refused(s)
	case s.Stage == registration.StageDeleting:
		return "", cli.Problem(auth.ErrMisconfigured, "wait until it is gone, and join it again",
			"cluster %q is being deleted", name)
	case a.claim.AuthType == "" && s.Failure != "":
		return fmt.Sprintf("for the hub program to look at cluster %q, which it retries: %s", name, s.Failure), nil
	case a.claim.AuthType == "":
		return fmt.Sprintf(
			"for the hub program to look at cluster %q: see whether Deployment %q runs, in the version of this command",
			name, hubProgram), nil
	case ok && recorded != a.claim && !a.cluster.Spec.HubAcceptsClient:
		return "", cli.Problem(auth.ErrUnavailable, "run the command again when that is done",
			"the hub is still taking away the access of cluster %q, which now claims %s", name, a.claim)
	}
	return "", nil
}

func (a *acceptance) refused(s registration.State) error {
	e := cli.Problem(auth.ErrMisconfigured, "correct that: the hub retries",
		"the hub cannot let cluster %q in: %s", a.cluster.Name, s.Message)
	e.Code = s.Reason
	return e
}

func (a *acceptance) checkClaim(context.Context) error {
	wanted := a.deciding.claim
	if wanted == cli.None {
		wanted = ""
	}
	if !a.cmd.Flags().Changed("claim") || a.claim.Value == wanted {
		return nil
	}
	return cli.Problem(auth.ErrDenied, "find out who joined under this name, or correct --claim",
		"cluster %q claims %s instead of %s", a.cluster.Name, claimOrNothing(a.claim.Value), claimOrNothing(wanted))
}

func claimOrNothing(claim string) string {
	if claim == "" {
		return "nothing"
	}
	return fmt.Sprintf("%.300q", claim)
}

// readLease remembers the Lease of a cluster that has joined before. Its
// condition Joined outlives the agent, which stops renewing the Lease.
func (a *acceptance) readLease(ctx context.Context) error {
	a.joinedBefore = a.wait && stateOf(a.cluster, nil).Joined == metav1.ConditionTrue
	_, err := a.renewed(ctx)
	return err
}

// renewed reports whether an agent has renewed the Lease since the first call.
// The hub itself creates a Lease that is missing.
func (a *acceptance) renewed(ctx context.Context) (bool, error) {
	if !a.joinedBefore {
		return true, nil
	}
	lease := &coordinationv1.Lease{}
	if err := a.hub.Get(ctx, client.ObjectKey{Namespace: a.cluster.Name, Name: ocm.LeaseName},
		lease); client.IgnoreNotFound(err) != nil {
		return false, cli.AnswerOf(err, fmt.Sprintf("read the Lease of cluster %q", a.cluster.Name))
	}
	if a.lease == "" {
		a.lease = lease.ResourceVersion
	}
	return lease.ResourceVersion != a.lease, nil
}

// ask lets a person at a terminal decide, unless the flag has decided.
func (a *acceptance) ask(context.Context) error {
	if a.cmd.Flags().Changed("claim") || !cli.IsTerminal(a.cmd.InOrStdin()) {
		return nil
	}
	return confirm(a.cmd, a.answers, fmt.Sprintf("Accept cluster %q with %s?", a.cluster.Name, a.claim),
		cli.Problem(auth.ErrDenied, "answer yes, or pass --claim", "cluster %q is not accepted", a.cluster.Name))
}

func (a *acceptance) allow(ctx context.Context) error {
	if err := a.set(ctx, a.cluster, true); err != nil {
		return err
	}
	return cli.Say(a.cmd, "cluster %q accepted", a.cluster.Name)
}

// proceed approves the request, which may come late, and says what is missing.
func (a *acceptance) proceed(ctx context.Context) (waitingFor string, err error) {
	if a.request == nil {
		if err := a.readRequest(ctx); err != nil {
			return "", err
		}
	}
	if a.request != nil && !a.approved { // a second request comes from another requester
		if err := a.approve(ctx); err != nil {
			return "", err
		}
		a.approved = true
	}
	if !a.wait {
		return "", nil
	}
	return a.joined(ctx)
}

func (a *acceptance) approve(ctx context.Context) error {
	err := a.request.Approve(ctx, a.hub, "wid hub accept")
	switch {
	case apierrors.IsConflict(err): // the hub approved it meanwhile
		return nil
	case err != nil:
		return cli.AnswerOf(err, fmt.Sprintf("approve the request of cluster %q", a.cluster.Name))
	}
	return cli.Say(a.cmd, "cluster %q: request %q of user %q approved", a.cluster.Name, a.request.Object.Name,
		a.request.Object.Spec.Username)
}

// joined says what is missing until the cluster has joined. A refusal of the
// hub ends the wait, except a grant that the hub retries.
func (a *acceptance) joined(ctx context.Context) (waitingFor string, err error) {
	cluster := a.cluster
	if err := a.hub.Get(ctx, client.ObjectKeyFromObject(cluster), cluster); err != nil {
		return "", cli.AnswerOf(err, fmt.Sprintf("read ManagedCluster %q", cluster.Name))
	}
	s := stateOf(cluster, nil)
	refused := s.Stage == registration.StageRefused && s.Acted
	switch {
	case !cluster.Spec.HubAcceptsClient:
		return "", cli.Problem(auth.ErrDenied, "check whether an administrator denied it or wid unjoin ran",
			"cluster %q was denied meanwhile", cluster.Name)
	case !s.HasAccess() && s.Failure != "", refused && s.Reason == ocm.ReasonGrantFailed:
		return fmt.Sprintf("for the hub to let cluster %q in, which it retries: %s",
			cluster.Name, cmp.Or(s.Failure, s.Message)), nil
	case refused:
		return "", a.refused(s)
	case !s.HasAccess():
		return fmt.Sprintf("for the hub program to let cluster %q in: see whether Deployment %q runs", cluster.Name,
			hubProgram), nil
	case s.Joined != metav1.ConditionTrue:
		return fmt.Sprintf("for the agent of cluster %q to join", cluster.Name), nil
	}
	if renewed, err := a.renewed(ctx); err != nil || !renewed {
		every := time.Duration(cmp.Or(cluster.Spec.LeaseDurationSeconds, 60)) * time.Second // the CRD has that default too
		return fmt.Sprintf(
			"for the agent of cluster %q to renew its Lease, which it does every %s: the cluster joined before, and only the Lease shows that an agent runs now", cluster.Name, every), err
	}
	return "", cli.Say(a.cmd, "cluster %q has joined", cluster.Name)
}

// readRequest finds the request that is approved together with the cluster, if
// there is one.
func (a *acceptance) readRequest(ctx context.Context) (err error) {
	a.request, err = a.pickRequest(ctx)
	return cli.AnswerOf(err, fmt.Sprintf("read the requests of cluster %q", a.cluster.Name))
}

// pickRequest returns nil without a request to approve. Only the auth type csr
// has requests. It picks the one pending request of a bootstrap user, unless
// the cluster has an agent that works or that the hub has recorded. Any other
// request has to be named. The hub itself approves renewals.
func (a *acceptance) pickRequest(ctx context.Context) (*csr.Request, error) {
	var pending []*csr.Request
	if a.claim.AuthType == registration.AuthTypeCSR {
		var err error
		if pending, err = csr.List(ctx, a.hub, a.cluster.Name, (*csr.Request).IsPending); err != nil {
			return nil, err
		}
	}
	if a.approves != "" {
		i := slices.IndexFunc(pending, func(r *csr.Request) bool { return r.Object.Name == a.approves })
		if i < 0 {
			return nil, cli.Problem(auth.ErrMisconfigured, "pass one that wid hub status -o yaml lists",
				"no request %q of cluster %q waits for approval", a.approves, a.cluster.Name)
		}
		return pending[i], nil
	}
	switch {
	case len(pending) == 0 || len(pending) == 1 && pending[0].IsRenewal():
		return nil, nil //nolint:nilnil // see above
	case len(pending) > 1:
		return nil, cli.Problem(auth.ErrDenied,
			"take that of the agent that runs, whose name the key agent-name of Secret "+ocm.HubKubeconfigSecret+
				" has on the cluster: "+a.approving(""),
			"cluster %q has %d requests, usually since its agent restarted before it was accepted; "+
				"one may be that of an intruder:%s", a.cluster.Name, len(pending), requesters(pending))
	case !isBootstrapUser(&pending[0].Object.Spec):
		return nil, cli.Problem(auth.ErrDenied, a.approving(pending[0].Object.Name)+" if that is the agent's user",
			"the request of cluster %q is not that of a bootstrap user:%s", a.cluster.Name, requesters(pending))
	}
	if err := a.checkAgent(ctx, pending[0]); err != nil {
		return nil, err
	}
	return pending[0], nil
}

// approving returns the command that approves a request by its name, which is
// free text.
func (a *acceptance) approving(request string) string {
	return "run " + a.Kubectl("wid hub accept --clusters "+a.cluster.Name+
		" --approve-request "+shell.Word(request, "REQUEST"))
}

// checkAgent refuses a request if the cluster's agent works, or if the hub goes
// on with another agent.
func (a *acceptance) checkAgent(ctx context.Context, r *csr.Request) error {
	agent, err := r.Replaces(ctx, a.hub)
	if err != nil {
		return err
	}
	s := stateOf(a.cluster, nil)
	works := s.Joined == metav1.ConditionTrue && s.Available == metav1.ConditionTrue
	if !works && agent == "" {
		return nil
	}
	return cli.Problem(auth.ErrDenied,
		"if the cluster joined again after wid unjoin, or its agent was replaced or lost its certificate, "+
			a.approving(r.Object.Name)+"; else it may be that of an intruder",
		"cluster %q has an agent already, recorded as %.100q, and request %q of user %.100q comes from another agent or has a new key",
		a.cluster.Name, agent, r.Object.Name, r.Object.Spec.Username)
}

// isBootstrapUser reports whether manifests.BootstrapRBAC lets a user
// ask for the first certificate of a cluster.
func isBootstrapUser(spec *certificatesv1.CertificateSigningRequestSpec) bool {
	return spec.Username == ocm.BootstrapUser || slices.Contains(spec.Groups, registration.BootstrapGroup)
}

// requesters has a line for each request, the newest first: an agent that
// restarts asks again.
func requesters(pending []*csr.Request) (lines string) {
	const most = 5
	slices.SortFunc(pending, func(a, b *csr.Request) int {
		return b.Object.CreationTimestamp.Compare(a.Object.CreationTimestamp.Time)
	})
	for _, r := range pending[:min(len(pending), most)] {
		lines += fmt.Sprintf("\n  request %q: agent %q with key %.8s, %s old, of user %.100q", r.Object.Name, r.Agent, r.Key,
			duration.ShortHumanDuration(time.Since(r.Object.CreationTimestamp.Time)), r.Object.Spec.Username)
	}
	if more := len(pending) - most; more > 0 {
		lines += fmt.Sprintf("\n  and %d more", more)
	}
	return lines
}
