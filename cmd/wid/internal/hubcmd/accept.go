package hubcmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/agentrequest"
	"github.com/workloadid/workloadid/internal/hubadmin"
	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/registration"
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
	f.StringVar(&d.approves, "approve-request", "", "name of the request to approve: one of several, of another user than bootstrap users, or for a cluster that has an agent already, which the hub then no longer renews")
	f.StringVar(&d.claim, "claim", "", "claim that the cluster must have, such as its ARN; empty for certificates")
	return cmd
}

// acceptance is the acceptance of one cluster.
type acceptance struct {
	*deciding
	cluster         *ocm.ManagedCluster
	authType, claim string
	request         *certificatesv1.CertificateSigningRequest // nil if there is none
	approved        bool
	joinedBefore    bool
	lease           string // its version before, if the cluster joined before
}

func (d *deciding) accept(ctx context.Context, cluster *ocm.ManagedCluster) error {
	a := &acceptance{deciding: d, cluster: cluster}
	// A hub with bootstrap users approves all their requests once the cluster is accepted, so the request is read before that.
	for _, step := range []func(context.Context) error{a.show, a.checkClaim, a.readLease, a.readRequest, a.ask, a.allow} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return cli.Await(ctx, d.cmd, func() (string, error) { return a.proceed(ctx) })
}

// show prints what is accepted.
func (a *acceptance) show(ctx context.Context) (err error) {
	name, role := a.cluster.Name, &rbacv1.ClusterRole{}
	if err := a.hub.Get(ctx, client.ObjectKey{Name: registration.ClusterRoleName(name)}, role); client.IgnoreNotFound(err) != nil {
		return cli.AnswerOf(err, fmt.Sprintf("read the ClusterRole of cluster %q", name))
	}
	if a.authType, a.claim, err = hubadmin.Claim(a.cluster, role); err != nil {
		return cli.Problem(auth.ErrMisconfigured, "correct the annotations of its ManagedCluster", "cluster %q: %v", name, err)
	}
	recorded, ok := role.Annotations[regname.AuthTypeAnnotation]
	if ok && (recorded != a.authType || role.Annotations[regname.ClaimAnnotation] != a.claim) && !a.cluster.Spec.HubAcceptsClient {
		return cli.Problem(auth.ErrUnavailable, "run the command again when that is done",
			"the hub is still taking away the access of cluster %q, which now claims %s", name, a.described())
	}
	return cli.Say(a.cmd, "cluster %q: %s", name, a.described())
}

func (a *acceptance) described() string {
	if a.claim == "" {
		return fmt.Sprintf("auth type %q", a.authType)
	}
	return fmt.Sprintf("auth type %q, claim %.300q", a.authType, a.claim)
}

// checkClaim refuses another claim than that of the flag.
func (a *acceptance) checkClaim(context.Context) error {
	if !a.cmd.Flags().Changed("claim") || a.claim == a.deciding.claim {
		return nil
	}
	return cli.Problem(auth.ErrDenied, "find out who joined under this name, or correct --claim",
		"cluster %q claims %s instead of %s", a.cluster.Name, orNothing(a.claim), orNothing(a.deciding.claim))
}

func orNothing(claim string) string {
	if claim == "" {
		return "nothing"
	}
	return fmt.Sprintf("%.300q", claim)
}

// readLease remembers the Lease of a cluster that has joined before. Its condition Joined outlives the agent, which stops renewing the
// Lease.
func (a *acceptance) readLease(ctx context.Context) error {
	a.joinedBefore = a.wait && meta.IsStatusConditionTrue(a.cluster.Status.Conditions, ocm.ConditionJoined)
	_, err := a.renewed(ctx)
	return err
}

// renewed reports whether an agent has renewed the Lease since the first call. The hub itself creates a Lease that is missing.
func (a *acceptance) renewed(ctx context.Context) (bool, error) {
	if !a.joinedBefore {
		return true, nil
	}
	lease := &coordinationv1.Lease{}
	if err := a.hub.Get(ctx, client.ObjectKey{Namespace: a.cluster.Name, Name: ocm.LeaseName}, lease); client.IgnoreNotFound(err) != nil {
		return false, cli.AnswerOf(err, fmt.Sprintf("read the Lease of cluster %q", a.cluster.Name))
	}
	if a.lease == "" {
		a.lease = lease.ResourceVersion
	}
	return lease.ResourceVersion != a.lease, nil
}

// readRequest finds the request to approve, and says what to do about one that it may not pick itself.
func (a *acceptance) readRequest(ctx context.Context) (err error) {
	a.request, err = hubadmin.Request(ctx, a.hub, a.cluster, a.authType, a.approves)
	var refused *hubadmin.RequestError
	if !errors.As(err, &refused) {
		return cli.AnswerOf(err, fmt.Sprintf("read the requests of cluster %q", a.cluster.Name))
	}
	reason, remedy := auth.ErrDenied, "run "+a.Wid("wid hub accept --clusters "+a.cluster.Name+" --approve-request "+shell.Word(refused.Name, "REQUEST"))
	switch refused.Cause {
	case hubadmin.RequestNotFound:
		reason, remedy = auth.ErrMisconfigured, "pass one that wid hub status -o yaml lists"
	case hubadmin.SeveralRequests:
		remedy += " with the name of its agent's"
	case hubadmin.NotBootstrapUser:
		remedy += " if that is the agent's user"
	case hubadmin.AnotherAgent:
		remedy = "if the cluster joined again after wid unjoin, or its agent was replaced or lost its certificate, " + remedy +
			"; else it may be that of an intruder: run " + a.Kubectl("kubectl certificate deny "+shell.Word(refused.Name, "REQUEST"))
	}
	return cli.Problem(reason, remedy, "%v", refused)
}

// ask lets a person at a terminal decide, unless the flag has decided.
func (a *acceptance) ask(context.Context) error {
	if a.cmd.Flags().Changed("claim") || !hasTerminal(a.cmd) {
		return nil
	}
	return confirm(a.cmd, a.answers, fmt.Sprintf("Accept cluster %q with %s?", a.cluster.Name, a.described()),
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
	err := agentrequest.Approve(ctx, a.hub, a.request, "wid hub accept")
	switch {
	case apierrors.IsConflict(err): // the hub approved it meanwhile
		return nil
	case err != nil:
		return cli.AnswerOf(err, fmt.Sprintf("approve the request of cluster %q", a.cluster.Name))
	}
	return cli.Say(a.cmd, "cluster %q: request %q of user %q approved", a.cluster.Name, a.request.Name, a.request.Spec.Username)
}

// joined says what is missing until the cluster has joined. A refusal of the hub ends the wait, except a grant that the hub retries.
func (a *acceptance) joined(ctx context.Context) (waitingFor string, err error) {
	cluster := a.cluster
	if err := a.hub.Get(ctx, client.ObjectKeyFromObject(cluster), cluster); err != nil {
		return "", cli.AnswerOf(err, fmt.Sprintf("read ManagedCluster %q", cluster.Name))
	}
	accepted := hubadmin.Condition(cluster, ocm.ConditionHubAccepted)
	refused := accepted.Status == metav1.ConditionFalse && accepted.ObservedGeneration == cluster.Generation && accepted.Reason != ocm.ReasonHubDenied
	switch {
	case !cluster.Spec.HubAcceptsClient:
		return "", cli.Problem(auth.ErrDenied, "check whether an administrator denied it or wid unjoin ran", "cluster %q was denied meanwhile", cluster.Name)
	case refused && accepted.Reason == regname.ReasonGrantFailed:
		return fmt.Sprintf("for the hub to let cluster %q in, which it retries: %s", cluster.Name, accepted.Message), nil
	case refused:
		e := cli.Problem(auth.ErrMisconfigured, "correct that: the hub retries", "the hub cannot let cluster %q in: %s", cluster.Name, accepted.Message)
		e.Code = accepted.Reason
		return "", e
	case accepted.Status != metav1.ConditionTrue:
		return fmt.Sprintf("for the hub program to let cluster %q in: see whether Deployment %q runs", cluster.Name, hubProgram), nil
	case !meta.IsStatusConditionTrue(cluster.Status.Conditions, ocm.ConditionJoined):
		return fmt.Sprintf("for the agent of cluster %q to join", cluster.Name), nil
	}
	if renewed, err := a.renewed(ctx); err != nil || !renewed {
		return fmt.Sprintf("for the agent of cluster %q to renew its Lease: the cluster joined before, and only the Lease shows that an agent runs now", cluster.Name), err
	}
	return "", cli.Say(a.cmd, "cluster %q has joined", cluster.Name)
}
