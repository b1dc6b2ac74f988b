package hubcmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/install"
	"github.com/workloadid/workloadid/internal/kubeerror"
	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
)

// deciding are the flags of accept and deny.
type deciding struct {
	cli.Side
	clusters []string
	wait     bool
	approves string // the name of a request
	claim    string

	cmd     *cobra.Command
	hub     client.Client
	answers *bufio.Reader // of the person at the terminal
	denied  []string      // clusters whose access the hub has to take away
}

func newHubAccept() *cobra.Command {
	d := &deciding{}
	cmd := &cobra.Command{
		Use:   "accept",
		Short: "Let clusters join the hub, and approve the requests of their agents for a certificate",
		Long: "Let clusters join the hub. It shows the claim of each cluster, accepts exactly that, and approves the one pending\n" +
			"request of a bootstrap user. It approves none of several requests. To replace the agent of a cluster, or the certificate\n" +
			"that the agent lost, name its request with --approve-request. At a terminal it asks before it accepts, unless --claim names\n" +
			"the claim.",
		Example: "  wid hub accept --clusters managed-0,managed-1 --wait\n" +
			"  wid hub accept --clusters managed-2 --claim arn:aws:eks:eu-west-1:222222222222:cluster/shop",
	}
	cmd.Flags().StringSliceVar(&d.clusters, "clusters", nil, "names of the clusters")
	cmd.Flags().BoolVar(&d.wait, "wait", false, "wait until the clusters have joined, also for those that have not asked yet")
	cmd.Flags().StringVar(&d.approves, "approve-request", "", "name of the request to approve: one of several, of another user than bootstrap users, or for a cluster that has an agent already, which the hub then no longer renews")
	cmd.Flags().StringVar(&d.claim, "claim", "", "claim that the cluster must have, such as its ARN; empty for certificates")
	return d.Command(cmd, "the hub", d.each(d.accept))
}

func newHubDeny() *cobra.Command {
	d := &deciding{}
	cmd := &cobra.Command{
		Use:     "deny",
		Short:   "Take away the access of clusters to the hub, or keep them from it",
		Example: "  wid hub deny --clusters managed-0",
	}
	cmd.Flags().StringSliceVar(&d.clusters, "clusters", nil, "names of the clusters")
	cmd.Flags().BoolVar(&d.wait, "wait", false, "wait until the hub has taken away the access")
	return d.Command(cmd, "the hub", func(ctx context.Context, cmd *cobra.Command) error {
		err := d.each(d.deny)(ctx, cmd)
		return errors.Join(err, d.revoked(ctx))
	})
}

func (d *deciding) deny(ctx context.Context, cluster *ocm.ManagedCluster) error {
	accepted := cluster.Spec.HubAcceptsClient
	condition, reason := ConditionOf(cluster, ocm.ConditionHubAccepted)
	if !accepted && isDenial(condition, reason) {
		return cli.Say(d.cmd, "cluster %q is denied already: nothing to do", cluster.Name)
	}
	if err := d.set(ctx, cluster, false); err != nil {
		return err
	}
	if condition == string(metav1.ConditionTrue) {
		d.denied = append(d.denied, cluster.Name)
		return nil
	}
	// The hub may take a cluster that it never let in for a new one.
	if err := d.recordDenial(ctx, cluster.Name); err != nil {
		return err
	}
	if !accepted {
		return cli.Say(d.cmd, "cluster %q denied: it was not accepted, and the hub no longer accepts it automatically", cluster.Name)
	}
	return cli.Say(d.cmd, "cluster %q denied: the hub had not let it in", cluster.Name)
}

// revoked says whether the hub has taken away the access of the denied clusters. Without --wait it gives the hub a moment for all of them.
func (d *deciding) revoked(ctx context.Context) error {
	look := ctx
	if !d.wait {
		moment, cancel := context.WithTimeout(ctx, cli.Quiet-cli.PollInterval) // ends before a notice
		defer cancel()
		look = moment
	}
	for _, name := range d.denied {
		err := cli.Await(look, d.cmd, func() (string, error) { return d.revoking(ctx, name) })
		switch {
		case err == nil:
			err = cli.Say(d.cmd, "cluster %q denied: the hub has taken away its access. %s", name, afterDenial)
		case look.Err() != nil && ctx.Err() == nil:
			err = cli.Say(d.cmd, "cluster %q denied; the hub has not acted yet, the cluster still has access: check that Deployment %q runs, with %s. %s",
				name, install.HubNamespace+"/"+install.HubDeployment, d.Wid("wid hub deny --wait --clusters "+name), afterDenial)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

const afterDenial = "A client certificate stays valid until it expires, and works again if the cluster is accepted again"

// revoking says what is missing until a denied cluster has no access. The hub reports a denial after it has removed the RBAC.
func (d *deciding) revoking(ctx context.Context, name string) (waitingFor string, err error) {
	cluster := &ocm.ManagedCluster{}
	err = d.hub.Get(ctx, client.ObjectKey{Name: name}, cluster)
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", cli.AnswerOf(err, fmt.Sprintf("read ManagedCluster %q", name))
	case cluster.Spec.HubAcceptsClient:
		return "", &auth.Error{Reason: auth.ErrUnavailable, Message: fmt.Sprintf("cluster %q was accepted meanwhile", name), Remedy: "run the command again"}
	case isDenial(ConditionOf(cluster, ocm.ConditionHubAccepted)):
		return "", nil
	}
	return fmt.Sprintf("for the hub program to take away the access of cluster %q: it runs in Deployment %q", name, install.HubNamespace+"/"+install.HubDeployment), nil
}

func isDenial(condition, reason string) bool {
	return condition == string(metav1.ConditionFalse) && reason == ocm.ReasonHubDenied
}

// each reads all clusters before it changes the first one, so that a wrong name changes nothing.
func (d *deciding) each(decide func(context.Context, *ocm.ManagedCluster) error) func(context.Context, *cobra.Command) error {
	return func(ctx context.Context, cmd *cobra.Command) (err error) {
		if err := checkClusters(d.clusters); err != nil {
			return err
		}
		if len(d.clusters) > 1 && (d.approves != "" || cmd.Flags().Changed("claim")) {
			return cli.Usagef("--claim and --approve-request are for one cluster: run the command once for each")
		}
		d.cmd, d.answers = cmd, bufio.NewReader(cmd.InOrStdin())
		if d.hub, _, err = d.Connect(); err != nil {
			return err
		}
		var all []*ocm.ManagedCluster
		for _, name := range slices.Compact(slices.Sorted(slices.Values(d.clusters))) {
			cluster, err := d.read(ctx, name)
			if err != nil {
				return err
			}
			all = append(all, cluster)
		}
		for _, cluster := range all {
			if err := decide(ctx, cluster); err != nil {
				return err
			}
		}
		return nil
	}
}

func (d *deciding) read(ctx context.Context, name string) (*ocm.ManagedCluster, error) {
	cluster := &ocm.ManagedCluster{}
	return cluster, cli.Await(ctx, d.cmd, func() (string, error) {
		err := d.hub.Get(ctx, client.ObjectKey{Name: name}, cluster)
		if !apierrors.IsNotFound(err) {
			return "", cli.AnswerOf(err, fmt.Sprintf("read ManagedCluster %q", name))
		}
		if d.wait {
			return fmt.Sprintf("for the agent of cluster %q to reach the hub: it does after wid join", name), nil
		}
		return "", &auth.Error{Reason: auth.ErrMisconfigured, Err: err, Message: fmt.Sprintf("there is no ManagedCluster %q on the hub", name),
			Remedy: "run wid join on that cluster, correct the name, or pass --wait to accept"}
	})
}

// set fails if the cluster has changed since it was read, so that it accepts exactly the shown claim.
func (d *deciding) set(ctx context.Context, cluster *ocm.ManagedCluster, accepted bool) error {
	if cluster.Spec.HubAcceptsClient == accepted {
		return nil
	}
	base := cluster.DeepCopy()
	cluster.Spec.HubAcceptsClient = accepted
	err := d.hub.Patch(ctx, cluster, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
	operation := fmt.Sprintf("set hubAcceptsClient of ManagedCluster %q to %t", cluster.Name, accepted)
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) { // the policy for bootstrap users answers Invalid
		if rules := d.missing(ctx, cluster.Name); len(rules) > 0 {
			return &auth.Error{Reason: auth.ErrDenied, Operation: operation, Err: err, Message: cli.OneLine(kubeerror.Message(err)),
				Remedy: "the user lacks a right: an administrator of the hub has to add these rules to a ClusterRole of the user: " + strings.Join(rules, ", ")}
		}
	}
	return cli.AnswerOf(err, operation)
}

// missing returns the rules that the user lacks to set hubAcceptsClient. The webhook of Open Cluster Management asks for accept in a group of
// its own. A hub may do without it, so that rule counts only if no other is missing.
func (d *deciding) missing(ctx context.Context, cluster string) (rules []string) {
	for _, a := range []authorizationv1.ResourceAttributes{
		{Group: ocm.GroupVersion.Group, Resource: "managedclusters", Verb: "patch"},
		{Group: ocm.GroupVersion.Group, Resource: "managedclusters", Subresource: "accept", Verb: "update"},
		{Group: "register.open-cluster-management.io", Resource: "managedclusters", Subresource: "accept", Verb: "update"},
	} {
		a.Name = cluster
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &a}}
		err := d.hub.Create(ctx, review)
		if err != nil || review.Status.Allowed || a.Group != ocm.GroupVersion.Group && len(rules) > 0 {
			continue
		}
		resource := strings.TrimSuffix(a.Resource+"/"+a.Subresource, "/")
		rules = append(rules, fmt.Sprintf("{apiGroups: [%s], resources: [%s], verbs: [%s]}", a.Group, resource, a.Verb))
	}
	return rules
}

// recordDenial keeps the hub from approving a cluster that was never accepted. It fails if the hub was faster. Other writers of the
// status only cause another attempt.
func (d *deciding) recordDenial(ctx context.Context, name string) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		cluster := &ocm.ManagedCluster{}
		if err := d.hub.Get(ctx, client.ObjectKey{Name: name}, cluster); err != nil {
			return err
		}
		if cluster.Spec.HubAcceptsClient {
			return &auth.Error{Reason: auth.ErrUnavailable, Message: fmt.Sprintf("cluster %q was accepted meanwhile", name), Remedy: "run the command again"}
		}
		base := cluster.DeepCopy()
		if !isDenial(ConditionOf(cluster, ocm.ConditionHubAccepted)) { // the time of the denial counts, not that of an earlier refusal
			meta.RemoveStatusCondition(&cluster.Status.Conditions, ocm.ConditionHubAccepted)
		}
		meta.SetStatusCondition(&cluster.Status.Conditions, metav1.Condition{Type: ocm.ConditionHubAccepted, Status: metav1.ConditionFalse,
			Reason: ocm.ReasonHubDenied, Message: "denied by an administrator of the hub", ObservedGeneration: cluster.Generation})
		return d.hub.Status().Patch(ctx, cluster, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
	})
	return cli.AnswerOf(err, fmt.Sprintf("set the condition %s of ManagedCluster %q", ocm.ConditionHubAccepted, name))
}

func (d *deciding) accept(ctx context.Context, cluster *ocm.ManagedCluster) error {
	authType, claim, err := d.show(ctx, cluster)
	if err != nil {
		return err
	}
	agent, err := d.agentBefore(ctx, cluster)
	if err != nil {
		return err
	}
	if err := d.checkClaim(cluster.Name, claim); err != nil {
		return err
	}
	// A hub with bootstrap users approves all their requests once the cluster is accepted, so read them first.
	request, err := d.request(ctx, cluster.Name, authType)
	if err != nil {
		return err
	}
	if err := d.checkAgent(ctx, cluster, request); err != nil {
		return err
	}
	if err := d.ask(cluster.Name, authType, claim); err != nil {
		return err
	}
	if err := d.set(ctx, cluster, true); err != nil {
		return err
	}
	if err := cli.Say(d.cmd, "cluster %q accepted", cluster.Name); err != nil {
		return err
	}
	approved := false
	return cli.Await(ctx, d.cmd, func() (string, error) {
		if request == nil {
			if request, err = d.request(ctx, cluster.Name, authType); err == nil {
				err = d.checkAgent(ctx, cluster, request)
			}
			if err != nil {
				return "", err
			}
		}
		if request != nil && !approved { // a second request comes from another requester
			if err := d.approve(ctx, cluster.Name, request); err != nil {
				return "", err
			}
			approved = true
		}
		if !d.wait {
			return "", nil
		}
		return d.joined(ctx, cluster, agent)
	})
}

// agentBefore remembers the Lease of a cluster that has joined before. Its condition Joined outlives the agent, which stops renewing the Lease.
type agentBefore struct {
	joined  bool
	version string
}

func (d *deciding) agentBefore(ctx context.Context, cluster *ocm.ManagedCluster) (*agentBefore, error) {
	b := &agentBefore{joined: d.wait && meta.IsStatusConditionTrue(cluster.Status.Conditions, ocm.ConditionJoined)}
	_, err := b.renews(ctx, d.hub, cluster.Name)
	return b, err
}

// renews reports whether an agent has renewed the Lease since the first call. The hub itself creates a Lease that is missing.
func (b *agentBefore) renews(ctx context.Context, hub client.Client, cluster string) (bool, error) {
	if !b.joined {
		return true, nil
	}
	lease := &coordinationv1.Lease{}
	if err := hub.Get(ctx, client.ObjectKey{Namespace: cluster, Name: ocm.LeaseName}, lease); client.IgnoreNotFound(err) != nil {
		return false, cli.AnswerOf(err, fmt.Sprintf("read the Lease of cluster %q", cluster))
	}
	if b.version == "" {
		b.version = lease.ResourceVersion
	}
	return lease.ResourceVersion != b.version, nil
}

// checkAgent refuses a request that was not named if the cluster's agent works, or if the hub goes on with another agent.
func (d *deciding) checkAgent(ctx context.Context, cluster *ocm.ManagedCluster, request *certificatesv1.CertificateSigningRequest) error {
	if request == nil || request.Name == d.approves {
		return nil
	}
	agent, err := csr.Replaces(ctx, d.hub, request)
	if err != nil {
		return cli.AnswerOf(err, fmt.Sprintf("read the agent of cluster %q", cluster.Name))
	}
	works := meta.IsStatusConditionTrue(cluster.Status.Conditions, ocm.ConditionJoined) && meta.IsStatusConditionTrue(cluster.Status.Conditions, ocm.ConditionAvailable)
	if !works && agent == "" {
		return nil
	}
	return &auth.Error{Reason: auth.ErrDenied, Message: fmt.Sprintf("cluster %q has an agent already, recorded as %.100q, and request %q of user %.100q comes from another agent or has a new key",
		cluster.Name, agent, request.Name, request.Spec.Username),
		Remedy: "if the cluster joined again after wid unjoin, or its agent was replaced or lost its certificate, run " + d.approving(cluster.Name, request.Name) +
			"; else it may be that of an intruder: run " + d.Kubectl("kubectl certificate deny "+shell.Word(request.Name, "REQUEST"))}
}

// approving returns the command that approves one request. Names of requests are free text.
func (d *deciding) approving(cluster, request string) string {
	return d.Wid("wid hub accept --clusters " + cluster + " --approve-request " + shell.Word(request, "REQUEST"))
}

// checkClaim refuses another claim than that of the flag.
func (d *deciding) checkClaim(cluster, claim string) error {
	if !d.cmd.Flags().Changed("claim") || claim == d.claim {
		return nil
	}
	return &auth.Error{Reason: auth.ErrDenied, Message: fmt.Sprintf("cluster %q claims %s instead of %s", cluster, orNothing(claim), orNothing(d.claim)),
		Remedy: "find out who joined under this name, or correct --claim"}
}

func orNothing(claim string) string {
	if claim == "" {
		return "nothing"
	}
	return fmt.Sprintf("%.300q", claim)
}

// ask lets a person at a terminal decide, unless the flag has decided.
func (d *deciding) ask(cluster, authType, claim string) error {
	if d.cmd.Flags().Changed("claim") || !hasTerminal(d.cmd) {
		return nil
	}
	return confirm(d.cmd, d.answers, fmt.Sprintf("Accept cluster %q with %s?", cluster, described(authType, claim)),
		&auth.Error{Reason: auth.ErrDenied, Message: fmt.Sprintf("cluster %q is not accepted", cluster), Remedy: "answer yes, or pass --claim"})
}

func hasTerminal(cmd *cobra.Command) bool {
	in, ok := cmd.InOrStdin().(*os.File)
	return ok && term.IsTerminal(int(in.Fd())) //nolint:gosec // a file descriptor fits
}

// confirm asks a person at a terminal. It returns no after another answer than yes, and without a terminal.
func confirm(cmd *cobra.Command, answers *bufio.Reader, question string, no *auth.Error) error {
	if !hasTerminal(cmd) {
		return no
	}
	cmd.PrintErr(question, " [yes/no] ")
	answer, err := answers.ReadString('\n')
	if strings.TrimSpace(answer) == "yes" {
		return nil
	}
	no.Err = err
	return no
}

// described leaves out the claim that certificates do not have.
func described(authType, claim string) string {
	if claim == "" {
		return fmt.Sprintf("auth type %q", authType)
	}
	return fmt.Sprintf("auth type %q, claim %.300q", authType, claim)
}

// show prints what is accepted, and returns it.
func (d *deciding) show(ctx context.Context, cluster *ocm.ManagedCluster) (authType, claim string, err error) {
	role := &rbacv1.ClusterRole{}
	if err := d.hub.Get(ctx, client.ObjectKey{Name: registration.ClusterRoleName(cluster.Name)}, role); client.IgnoreNotFound(err) != nil {
		return "", "", cli.AnswerOf(err, fmt.Sprintf("read the ClusterRole of cluster %q", cluster.Name))
	}
	drivers, err := hubDrivers(d.hub)
	if err != nil {
		return "", "", err
	}
	authType, claim, err = claimOf(drivers, cluster, role)
	if err != nil {
		return "", "", &auth.Error{Reason: auth.ErrMisconfigured, Message: fmt.Sprintf("cluster %q: %v", cluster.Name, err), Remedy: "correct the annotations of its ManagedCluster"}
	}
	recorded, ok := role.Annotations[registration.AuthTypeAnnotation]
	if ok && (recorded != authType || role.Annotations[registration.ClaimAnnotation] != claim) && !cluster.Spec.HubAcceptsClient {
		return "", "", &auth.Error{Reason: auth.ErrUnavailable, Message: fmt.Sprintf("the hub is still taking away the access of cluster %q, which now claims %s",
			cluster.Name, described(authType, claim)), Remedy: "run the command again when that is done"}
	}
	return authType, claim, cli.Say(d.cmd, "cluster %q: %s", cluster.Name, described(authType, claim))
}

// claimOf returns the claim that the hub grants: the recorded one of an accepted cluster, otherwise the one in its annotations.
func claimOf(drivers []claimReader, cluster *ocm.ManagedCluster, role *rbacv1.ClusterRole) (authType, claim string, err error) {
	if authType, ok := role.Annotations[registration.AuthTypeAnnotation]; ok && cluster.Spec.HubAcceptsClient {
		return authType, role.Annotations[registration.ClaimAnnotation], nil
	}
	authType = registration.AuthTypeCSR
	for _, driver := range drivers {
		said, ok, err := driver.Claim(cluster)
		if err != nil {
			return "", "", err
		}
		if ok {
			authType, claim = driver.Name(), said
		}
	}
	return authType, claim, nil
}

// request returns the request to approve, nil if there is none. Among several it cannot tell which is the agent's.
func (d *deciding) request(ctx context.Context, cluster, authType string) (*certificatesv1.CertificateSigningRequest, error) {
	var pending []certificatesv1.CertificateSigningRequest
	if authType == registration.AuthTypeCSR {
		var err error
		if pending, err = csr.Pending(ctx, d.hub, cluster); err != nil {
			return nil, cli.AnswerOf(err, fmt.Sprintf("list the requests of cluster %q", cluster))
		}
	}
	named := slices.IndexFunc(pending, func(r certificatesv1.CertificateSigningRequest) bool { return r.Name == d.approves })
	switch {
	case named >= 0:
		return &pending[named], nil
	case d.approves != "":
		return nil, &auth.Error{Reason: auth.ErrMisconfigured, Message: fmt.Sprintf("no request %q of cluster %q waits for approval", d.approves, cluster),
			Remedy: "pass one that wid hub status -o yaml lists"}
	case len(pending) == 0 || len(pending) == 1 && isRenewal(&pending[0]): // the hub approves renewals, by its record
		return nil, nil
	case len(pending) > 1:
		return nil, &auth.Error{Reason: auth.ErrDenied, Message: fmt.Sprintf("cluster %q has %d requests, and one may be that of an intruder: %s", cluster, len(pending), requesters(pending)),
			Remedy: "run " + d.approving(cluster, "") + " with the name of its agent's"}
	case !isBootstrapUser(&pending[0].Spec):
		return nil, &auth.Error{Reason: auth.ErrDenied, Message: fmt.Sprintf("the request of cluster %q is not that of a bootstrap user: %s", cluster, requesters(pending)),
			Remedy: "run " + d.approving(cluster, pending[0].Name) + " if that is the agent's user"}
	}
	return &pending[0], nil
}

// isRenewal reports whether the agent of a request has made it itself.
func isRenewal(r *certificatesv1.CertificateSigningRequest) bool {
	request, err := csr.ParseRequest(r)
	return err == nil && r.Spec.Username == request.User()
}

// isBootstrapUser reports whether registration.BootstrapManifest lets a user ask for the first certificate of a cluster.
func isBootstrapUser(spec *certificatesv1.CertificateSigningRequestSpec) bool {
	return spec.Username == registration.BootstrapUser || slices.Contains(spec.Groups, registration.BootstrapGroup)
}

func (d *deciding) approve(ctx context.Context, cluster string, request *certificatesv1.CertificateSigningRequest) error {
	err := csr.Approve(ctx, d.hub, request, "wid hub accept")
	switch {
	case apierrors.IsConflict(err): // the hub approved it meanwhile
		return nil
	case err != nil:
		return cli.AnswerOf(err, fmt.Sprintf("approve the request of cluster %q", cluster))
	}
	return cli.Say(d.cmd, "cluster %q: request %q of user %q approved", cluster, request.Name, request.Spec.Username)
}

func requesters(pending []certificatesv1.CertificateSigningRequest) (all string) {
	const most = 5
	for i, r := range pending[:min(len(pending), most)] {
		if i > 0 {
			all += ", "
		}
		all += fmt.Sprintf("%q of user %.100q", r.Name, r.Spec.Username)
	}
	if more := len(pending) - most; more > 0 {
		all += fmt.Sprintf(" and %d more", more)
	}
	return all
}

// joined says what is missing until the cluster has joined. A refusal of the hub ends the wait, except a grant that the hub retries.
func (d *deciding) joined(ctx context.Context, cluster *ocm.ManagedCluster, agent *agentBefore) (waitingFor string, err error) {
	if err := d.hub.Get(ctx, client.ObjectKeyFromObject(cluster), cluster); err != nil {
		return "", cli.AnswerOf(err, fmt.Sprintf("read ManagedCluster %q", cluster.Name))
	}
	accepted := meta.FindStatusCondition(cluster.Status.Conditions, ocm.ConditionHubAccepted)
	refused := accepted != nil && accepted.Status == metav1.ConditionFalse && accepted.ObservedGeneration == cluster.Generation && accepted.Reason != ocm.ReasonHubDenied
	switch {
	case !cluster.Spec.HubAcceptsClient:
		return "", &auth.Error{Reason: auth.ErrDenied, Message: fmt.Sprintf("cluster %q was denied meanwhile", cluster.Name), Remedy: "check whether an administrator denied it or wid unjoin ran"}
	case refused && accepted.Reason == hub.ReasonGrantFailed:
		return fmt.Sprintf("for the hub to let cluster %q in, which it retries: %s", cluster.Name, cli.OneLine(accepted.Message)), nil
	case refused:
		return "", &auth.Error{Reason: auth.ErrMisconfigured, Code: cli.OneLine(accepted.Reason),
			Message: fmt.Sprintf("the hub cannot let cluster %q in: %s", cluster.Name, cli.OneLine(accepted.Message)), Remedy: "correct that: the hub retries"}
	case accepted == nil || accepted.Status != metav1.ConditionTrue:
		return fmt.Sprintf("for the hub program to let cluster %q in: it runs in Deployment %q", cluster.Name, install.HubNamespace+"/"+install.HubDeployment), nil
	case !meta.IsStatusConditionTrue(cluster.Status.Conditions, ocm.ConditionJoined):
		return fmt.Sprintf("for the agent of cluster %q to join", cluster.Name), nil
	}
	if renews, err := agent.renews(ctx, d.hub, cluster.Name); err != nil || !renews {
		return fmt.Sprintf("for the agent of cluster %q to renew its Lease: the cluster joined before, and only the Lease shows that an agent runs now", cluster.Name), err
	}
	return "", cli.Say(d.cmd, "cluster %q has joined", cluster.Name)
}
