package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/smithy-go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/internal/kubeerror"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/token"
)

func newHub() *cobra.Command {
	return group("hub", "Set up a hub, and decide which clusters join it (Open Cluster Management)",
		newHubInit(), newHubToken(), newHubAccept(), newHubDeny(), newHubStatus(), newHubPolicies(), newHubCleanup())
}

// bindKubeFile adds --kubeconfig and --context.
func bindKubeFile(f *pflag.FlagSet, k *kubeFile, of string) {
	f.StringVar(&k.path, "kubeconfig", "", "kubeconfig of "+of+"; KUBECONFIG and ~/.kube/config otherwise")
	f.StringVar(&k.context, "context", "", "context of the kubeconfig")
}

// wid returns a command of this program for the cluster of k.
func (k kubeFile) wid(command string) string {
	return strings.TrimSpace(command + " " + strings.TrimPrefix(k.kubectl("kubectl "), "kubectl "))
}

// side is the hub or the managed cluster, as a command reaches it.
type side struct {
	cluster
	timeout time.Duration
}

// command returns a command whose work ends in time.
func (s *side) command(cmd *cobra.Command, of string, work func(ctx context.Context, cmd *cobra.Command) error) *cobra.Command {
	bindKubeFile(cmd.Flags(), &s.kubeFile, of)
	cmd.Flags().DurationVar(&s.timeout, "timeout", 5*time.Minute, "time for everything together")
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if s.timeout <= 0 {
			return usagef("--timeout is more than 0, not %s", s.timeout)
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), s.timeout)
		defer cancel()
		_, err := within(ctx, func(ctx context.Context) ([]byte, error) { return nil, work(ctx, cmd) })
		return err
	}
	return cmd
}

const (
	// page is how many objects of a hub are read at once. Bootstrap users and clusters can create many, each as large as etcd takes.
	page    = client.Limit(20)
	maxPage = 32 << 20 // 20 objects of 1.5 MiB
)

// pages calls list for each page, with the position of the page after it, which list returns.
func pages(list func(opts ...client.ListOption) (next string, err error)) error {
	for next := ""; ; {
		var err error
		if next, err = list(page, client.Continue(next)); err != nil || next == "" {
			return err
		}
	}
}

// connect reads the kubeconfig. It makes no request.
func (s *side) connect() (client.Client, *rest.Config, error) {
	s.answers = maxPage
	config, err := s.config()
	if err != nil {
		return nil, nil, err
	}
	c, err := newRegistrationClient(config)
	return c, config, err
}

func newRegistrationClient(config *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), ocm.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.UserAgent, config.QPS = "wid", -1 // a few requests that a person waits for
	c, err := client.New(config, client.Options{Scheme: scheme})
	return c, answerOf(err, "connect to "+config.Host)
}

// answerOf classifies the error of an API server, and says what to do about it.
func answerOf(err error, operation string) error {
	var known *auth.Error
	var usage *usageError
	if err == nil || errors.As(err, &known) || errors.As(err, &usage) {
		return err
	}
	e := &auth.Error{Operation: operation, Err: err, Message: oneLine(kubeerror.Message(err))}
	switch status := apierrors.APIStatus(nil); {
	case meta.IsNoMatchError(err) || errors.As(err, new(*meta.NoKindMatchError)):
		e.Reason, e.Remedy = auth.ErrMisconfigured, "prepare the hub with wid hub init --apply, or pick another cluster with --context"
	case apierrors.IsUnauthorized(err):
		e.Reason, e.Remedy = auth.ErrUnavailable, "log in again, or renew the token"
	case apierrors.IsForbidden(err):
		e.Reason, e.Remedy = auth.ErrDenied, "use a user who has that right"
	case apierrors.IsTooManyRequests(err):
		e.Reason, e.Remedy = auth.ErrThrottled, "try again later"
	case apierrors.IsConflict(err):
		e.Reason, e.Remedy = auth.ErrUnavailable, "it has changed meanwhile: run the command again"
	case errors.As(err, &status) && status.Status().Code < 500:
		e.Reason, e.Remedy = auth.ErrMisconfigured, "correct what the API server refuses"
	default:
		e.Reason, e.Remedy = auth.ErrUnavailable, "check the address of the cluster and the network, and try kubectl version with the same kubeconfig"
	}
	return e
}

// agentDriver and hubDrivers know the auth types of this program.
func agentDriver(authType string, arns *clusterARNs) (registration.Driver, error) {
	if err := checkAuthType(authType); err != nil {
		return nil, err
	}
	if err := arns.check(authType); err != nil {
		return nil, err
	}
	if authType == registration.AuthTypeAWS {
		return arns.driver()
	}
	return csr.New(csr.Options{}), nil
}

func checkAuthType(authType string) error {
	if authType == registration.AuthTypeToken {
		return usagef("--registration-auth: token registers add-ons only: use --addon-registration-auth=token in wid hub init, --%s=token in wid join", addOnAuthFlag)
	}
	if _, err := registration.Pick([]namedDriver{csr.New(csr.Options{}), awsClaims{}}, authType); err != nil {
		return usagef("--registration-auth: %v", err)
	}
	return nil
}

// Flags of the agent for add-ons.
const (
	addOnAuthFlag    = "addon-kubeclient-registration-auth"
	addOnSecondsFlag = "addon-token-expiration-seconds"
)

// checkAddOns judges auth types of add-ons that a flag names, and the lifetime of tokens.
func checkAddOns(flag string, seconds int64, authTypes ...string) error {
	tokens, err := token.New(token.Options{ExpirationSeconds: seconds})
	if err != nil {
		return usagef("--%s: %v", addOnSecondsFlag, err)
	}
	for _, authType := range authTypes {
		if _, err := registration.Pick([]namedDriver{csr.New(csr.Options{}), tokens}, authType); err != nil {
			return usagef("--%s: %v", flag, err)
		}
	}
	return nil
}

type namedDriver interface{ Name() string }

// claimReader is the part of a registration.HubDriver that needs no login.
type claimReader interface {
	namedDriver
	Claim(cluster *ocm.ManagedCluster) (claim string, ok bool, err error)
}

func hubDrivers(c client.Client) ([]claimReader, error) {
	driver, err := csr.NewHubDriver(csr.HubDriverOptions{Client: c})
	return []claimReader{driver, awsClaims{}}, err
}

// checkClusters judges --clusters.
func checkClusters(names []string) error {
	if len(names) == 0 {
		return usagef("name the clusters with --clusters, as a,b")
	}
	for _, name := range names {
		if err := registration.CheckClusterName(name); err != nil {
			return usagef("--clusters: %v", err)
		}
	}
	return nil
}

const (
	pollInterval = 250 * time.Millisecond
	quiet        = 2 * time.Second // before a command says what it waits for
	noticeEvery  = 10 * time.Second
)

// await polls until done returns "" or an error, or until the context ends. done names what is missing. await reports that after quiet, at
// once when it changes, and every noticeEvery.
func await(ctx context.Context, cmd *cobra.Command, done func() (waitingFor string, err error)) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	missing, said, next := "", "", time.Now().Add(quiet)
	for {
		waitingFor, err := done()
		switch now := time.Now(); {
		case err == nil && waitingFor == "":
			return nil
		case ctx.Err() != nil && missing != "":
			return unfinished(ctx, missing)
		case err != nil:
			return err
		case !now.Before(next) || said != "" && said != waitingFor:
			cmd.PrintErrf("wid: waiting%s %s\n", deadlineOf(ctx), waitingFor)
			said, next = waitingFor, now.Add(noticeEvery)
		}
		missing = waitingFor
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// during awaits work that waits by itself, and returns its error.
func during(ctx context.Context, cmd *cobra.Command, waitingFor func() string, work func() error) (err error) {
	done := make(chan error, 1)
	go func() { done <- work() }()
	_ = await(ctx, cmd, func() (string, error) { // ends without an error
		select {
		case err = <-done:
			return "", nil
		default:
		}
		if ctx.Err() == nil {
			return waitingFor(), nil
		}
		err = <-done
		return "", nil
	})
	if errors.Is(ctx.Err(), context.Canceled) {
		return unfinished(ctx, waitingFor())
	}
	return err
}

// unfinished is the error of a wait that the deadline or the user ended.
func unfinished(ctx context.Context, missing string) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("%w while waiting %s", errInterrupted, missing)
	}
	return &auth.Error{Reason: auth.ErrUnavailable, Err: ctx.Err(), Message: "gave up waiting " + missing, Remedy: "correct that, or raise --timeout"}
}

func deadlineOf(ctx context.Context) string {
	if deadline, ok := ctx.Deadline(); ok {
		return " until " + deadline.Format(time.TimeOnly)
	}
	return ""
}

const (
	hubARNFlag     = "eks-hub-cluster-arn"
	managedARNFlag = "eks-managed-cluster-arn"
)

// clusterARNs are the flags of the auth type aws-irsa.
type clusterARNs struct{ hub, managed string }

func (a *clusterARNs) bindHub(f *pflag.FlagSet) {
	f.StringVar(&a.hub, hubARNFlag, "", "ARN of the hub, for auth type "+registration.AuthTypeAWS)
}

func (a *clusterARNs) bindManaged(f *pflag.FlagSet) {
	f.StringVar(&a.managed, managedARNFlag, "", "ARN of the managed cluster, for auth type "+registration.AuthTypeAWS)
}

// check judges the ARN of the hub. Both ARNs are refused without the auth type that needs them.
func (a *clusterARNs) check(authTypes ...string) error {
	if slices.Contains(authTypes, registration.AuthTypeAWS) {
		_, err := parseARN(hubARNFlag, a.hub)
		return err
	}
	if a.hub != "" || a.managed != "" {
		return usagef("the ARNs of clusters are for --registration-auth=%s: pass that, or leave them out", registration.AuthTypeAWS)
	}
	return nil
}

// args are the flags for wid-hub and wid-agent.
func (a *clusterARNs) args() (args []string) {
	for _, f := range []struct{ name, value string }{{hubARNFlag, a.hub}, {managedARNFlag, a.managed}} {
		if f.value != "" {
			args = append(args, "--"+f.name+"="+f.value)
		}
	}
	return args
}

func parseARN(flag, value string) (awsirsa.ClusterARN, error) {
	if value == "" {
		return awsirsa.ClusterARN{}, usagef("--%s is missing: pass the ARN of that cluster, as arn:aws:eks:eu-central-1:123456789012:cluster/name", flag)
	}
	arn, err := awsirsa.ParseClusterARN(value)
	if err != nil {
		return arn, usagef("--%s: %v", flag, err)
	}
	return arn, nil
}

// pair parses both ARNs.
func (a *clusterARNs) pair() (hub, managed awsirsa.ClusterARN, err error) {
	if hub, err = parseARN(hubARNFlag, a.hub); err == nil {
		managed, err = parseARN(managedARNFlag, a.managed)
	}
	return hub, managed, err
}

func (a *clusterARNs) driver() (registration.Driver, error) {
	if _, _, err := a.pair(); err != nil {
		return nil, err
	}
	driver, err := awsirsa.New(awsirsa.Options{Hub: a.hub, Managed: a.managed, Connect: connectToEKS,
		Refused: func(err error) bool { return errors.Is(err, auth.ErrDenied) }})
	if err != nil {
		return nil, usagef("--%s and --%s: %v", hubARNFlag, managedARNFlag, err)
	}
	return driver, nil
}

// connectToEKS reaches the hub as its role for this cluster, by the login that AWS SDKs find.
func connectToEKS(ctx context.Context, hub awsirsa.HubAccess) (*rest.Config, error) {
	return auth.GetClusterConfig(ctx, &aws.Provider{}, auth.WithClusterResource(hub.Cluster), auth.WithClusterAddress(hub.Server),
		auth.WithCAData(string(hub.CAData)), aws.WithAssumeRole(aws.AssumeRole{RoleARN: hub.RoleARN}))
}

// awsClaims reads the claims of auth type aws-irsa, without a login at AWS.
type awsClaims struct{}

func (awsClaims) Name() string { return registration.AuthTypeAWS }

func (awsClaims) Claim(cluster *ocm.ManagedCluster) (string, bool, error) {
	return awsirsa.Claim(cluster)
}

// isEKS reports whether an API server has an address of Amazon EKS. One with another address may still be behind a proxy.
func isEKS(server string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	host := strings.TrimSuffix(strings.TrimSuffix(u.Hostname(), "."), ".cn")
	return strings.HasSuffix(host, ".eks.amazonaws.com") || strings.Contains(host, ".eks-cluster.") && strings.HasSuffix(host, ".api.aws")
}

// checkHub refuses auth types that the hub cannot serve. Only the address of EKS is proof; what another address contradicts is a warning.
func checkHub(cmd *cobra.Command, authTypes []string, server string) error {
	csr, aws := slices.Contains(authTypes, registration.AuthTypeCSR), slices.Contains(authTypes, registration.AuthTypeAWS)
	switch {
	case csr && isEKS(server):
		return usagef("--registration-auth: the hub %q is on EKS: the auth type %q needs a hub that signs client certificates, and EKS signs none: use %q alone, or another hub",
			server, registration.AuthTypeCSR, registration.AuthTypeAWS)
	case csr && aws:
		cmd.PrintErrln("wid: warning: the API server of this hub needs an authentication webhook for tokens of AWS that reads aws-auth, such as aws-iam-authenticator: wid cannot see whether it has one")
	case aws && !isEKS(server):
		cmd.PrintErrf("wid: warning: the hub %q has no address of EKS: the auth type %q alone needs a hub on EKS, which checks tokens of AWS itself: on other hubs use it together with %q\n",
			server, registration.AuthTypeAWS, registration.AuthTypeCSR)
	}
	return nil
}

// checkManaged warns of a cluster that cannot join with the auth type.
func checkManaged(cmd *cobra.Command, authType, server string) {
	if authType == registration.AuthTypeAWS && !isEKS(server) {
		cmd.PrintErrf("wid: warning: the managed cluster %q has no address of EKS: the auth type %q needs a managed cluster on EKS, since its ARN names it and IAM trusts its ServiceAccounts: use %q here\n",
			server, registration.AuthTypeAWS, registration.AuthTypeCSR)
	}
}

// withoutCSR leaves out the right to approve certificates, which a hub without the auth type csr does not need.
func withoutCSR(manifests string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(manifests, separator), func(document string) bool {
		return strings.Contains(document, "\n  name: open-cluster-management:hub:csr") // and hub:csr-addons
	}), separator)
}

// withRole annotates the ServiceAccount of manifests with its role in IAM, and gives it the name that the role trusts.
func withRole(manifests, account, trusted, roleARN string) string {
	return strings.NewReplacer(
		"kind: ServiceAccount\nmetadata:\n  name: "+account+"\n", "kind: ServiceAccount\nmetadata:\n  annotations: {"+aws.RoleARNAnnotation+": \""+roleARN+"\"}\n  name: "+trusted+"\n",
		"{kind: ServiceAccount, name: "+account+",", "{kind: ServiceAccount, name: "+trusted+",").Replace(manifests)
}

type hubPolicies struct {
	arns               clusterARNs
	issuer, klusterlet string
	authTypes          []string
	verify             bool
	output             *output
}

func newHubPolicies() *cobra.Command {
	p := &hubPolicies{}
	cmd := &cobra.Command{
		Use:   "policies",
		Short: "Print the IAM role that a hub or an agent needs for auth type " + registration.AuthTypeAWS + ", or verify it",
		Long: "Print an IAM role as JSON: name, trust policy, access policy and tags. Without --" + managedARNFlag + " it is the hub's\n" +
			"role, with it the role of that cluster's agent. --verify calls iam:GetRole and iam:GetRolePolicy with your own login at AWS.",
		Example: "  wid hub policies --eks-hub-cluster-arn \"$HUB_ARN\" --oidc-issuer \"$HUB_ISSUER\"",
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.run(cmd.Context(), cmd) },
	}
	f := cmd.Flags()
	p.output = outputFlag(cmd, "json", "yaml")
	p.arns.bindHub(f)
	p.arns.bindManaged(f)
	f.StringVar(&p.issuer, "oidc-issuer", "", "https URL of the OIDC issuer of the cluster whose role it is")
	f.StringVar(&p.klusterlet, "klusterlet-name", awsirsa.DefaultKlusterlet, "name of the Klusterlet of the managed cluster, for the ServiceAccounts of its agent")
	f.StringSliceVar(&p.authTypes, "registration-auth", []string{registration.AuthTypeAWS}, "auth types of the hub; with csr its role has no rights of EKS, since such a hub uses aws-auth")
	f.BoolVar(&p.verify, "verify", false, "compare the role in IAM, instead of printing it")
	cmd.Args = cobra.NoArgs
	return cmd
}

func (p *hubPolicies) run(ctx context.Context, cmd *cobra.Command) error {
	role, of, err := p.role()
	if err != nil {
		return err
	}
	if p.verify {
		return p.compare(ctx, cmd, role, of)
	}
	return p.output.print(cmd, struct {
		Name         string            `json:"name"`
		ARN          string            `json:"arn"`
		TrustPolicy  awsirsa.Policy    `json:"trustPolicy"`
		AccessPolicy awsirsa.Policy    `json:"accessPolicy"`
		Tags         map[string]string `json:"tags,omitempty"`
	}{role.Name(), role.ARN, role.Trust, role.Access, role.Tags}, nil)
}

// role returns the role, and the cluster in whose account it is.
func (p *hubPolicies) role() (role awsirsa.Role, of awsirsa.ClusterARN, err error) {
	for _, authType := range p.authTypes {
		if err := checkAuthType(authType); err != nil {
			return role, of, err
		}
	}
	hub, err := parseARN(hubARNFlag, p.arns.hub)
	switch {
	case err != nil:
		return role, of, err
	case p.issuer == "":
		return role, of, usagef("--oidc-issuer is missing: pass what aws eks describe-cluster shows as identity.oidc.issuer")
	case p.arns.managed == "":
		binding := awsirsa.AccessEntries
		if slices.Contains(p.authTypes, registration.AuthTypeCSR) {
			binding = awsirsa.AWSAuth
		}
		of = hub
		role, err = awsirsa.HubRole(hub, p.issuer, binding)
	default:
		if of, err = parseARN(managedARNFlag, p.arns.managed); err != nil {
			return role, of, err
		}
		role, err = awsirsa.AgentRole(hub, of, p.issuer, p.klusterlet)
	}
	if err != nil {
		err = usagef("%v", err)
	}
	return role, of, err
}

// compare uses the login of the caller. The region only picks the partition: IAM has no others.
func (p *hubPolicies) compare(ctx context.Context, cmd *cobra.Command, role awsirsa.Role, of awsirsa.ClusterARN) error {
	cfg, err := config.LoadDefaultConfig(ctx, config.WithRegion(of.Region))
	if err == nil {
		err = role.Verify(ctx, iam.NewFromConfig(cfg))
	}
	if err == nil {
		return say(cmd, "role %q is as it should be", role.ARN)
	}
	e := &auth.Error{Reason: auth.ErrMisconfigured, Provider: "aws", Operation: "verify a role", Err: err, Message: redact.Line(err.Error()),
		Remedy: fmt.Sprintf("correct the role in account %s by the output of wid hub policies without --verify", of.Account)}
	var api smithy.APIError
	var call *smithy.OperationError
	switch {
	case errors.As(err, &api) && api.ErrorCode() == "AccessDenied":
		e.Reason, e.Code, e.Remedy = auth.ErrDenied, api.ErrorCode(), "use a login that may call iam:GetRole and iam:GetRolePolicy in account "+of.Account
	case errors.As(err, &call) && api == nil:
		e.Reason, e.Remedy = auth.ErrUnavailable, "log in to account "+of.Account+", with AWS_PROFILE for example, and check the network"
	}
	return e
}
