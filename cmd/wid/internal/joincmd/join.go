// Package joincmd is wid join and wid unjoin.
package joincmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/install"
	"github.com/workloadid/workloadid/internal/input"
	"github.com/workloadid/workloadid/internal/jwt"
	"github.com/workloadid/workloadid/internal/kubeerror"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/kubeconfig"
	"github.com/workloadid/workloadid/registration/manifests"
	"github.com/workloadid/workloadid/registration/ocm"
)

type join struct {
	cli.Side
	install.Installing
	options               manifests.AgentOptions
	arns                  install.ClusterARNs
	server, token, caFile string
	pins                  []string
	reveal                bool
	accepted, absent      bool // on the hub
}

// NewJoin returns wid join.
func NewJoin() *cobra.Command {
	j := &join{}
	cmd := &cobra.Command{
		Use:   "join",
		Short: "Join a cluster to a hub: print or apply its agent, with the credential for the first contact",
		Long: "Join a cluster to a hub. It tries the credential at the hub, then prints or applies the manifests of the agent, which\n" +
			"hold that credential. --hub-token is a bootstrap token with --ca-cert-hash, or a ServiceAccount's token with --ca-file.\n" +
			"On a joined cluster --image and --apply alone upgrade the agent. It keeps its flags, its credential and its bootstrap Secret.",
		Example: "  wid join --hub-token - --hub-apiserver https://hub.example:6443 --ca-cert-hash sha256:… \\\n" +
			"    --cluster-name managed-0 --image registry.example/wid-agent:v1 --apply --wait <token",
	}
	j.Bind(cmd, "wid-agent", "the hub has accepted the cluster and the agent has a credential of its own")
	f := cmd.Flags()
	f.StringVar(&j.options.Cluster, "cluster-name", "", "name of the cluster on the hub, a DNS label")
	install.BindNamespace(f, &j.options.Namespace)
	f.StringVar(&j.options.AuthType, "registration-auth", registration.AuthTypeCSR,
		"auth type to register with, csr or "+registration.AuthTypeAWS)
	cli.Offer(cmd, "registration-auth", registration.AuthTypeCSR, registration.AuthTypeAWS)
	j.arns.BindHub(f)
	j.arns.BindManaged(f)
	f.StringVar(&j.options.AddOnAuthType, install.AddOnAuthFlag, "",
		"auth type by which add-ons reach the hub's API server, csr or token; without it that of the add-ons that an agent has registered, or else no rights to store their credentials")
	cli.Offer(cmd, install.AddOnAuthFlag, registration.AuthTypeCSR, registration.AuthTypeToken)
	f.Int64Var(&j.options.AddOnTokenSeconds, install.AddOnSecondsFlag, 0,
		"lifetime of add-on tokens that the auth type token asks for, in seconds; 0 for one year")
	f.StringVar(&j.server, "hub-apiserver", "", "https URL of the hub's API server")
	f.StringVar(&j.token, "hub-token", "", "credential for the first contact, - for standard input")
	f.StringSliceVar(&j.pins, "ca-cert-hash", nil,
		"pin of the hub's CA, sha256:<hex>, if the token is a bootstrap token; may be repeated")
	f.StringVar(&j.caFile, "ca-file", "", "PEM file with the hub's CA, instead of --ca-cert-hash")
	f.BoolVar(&j.reveal, "reveal", false, "print the manifests to a terminal too, with the credential")
	cli.Rare(f, "force-conflicts", install.AddOnAuthFlag, install.AddOnSecondsFlag, "replicas", "image-pull-secret")
	return j.Command(cmd, "the cluster that joins", j.run)
}

func (j *join) run(ctx context.Context, cmd *cobra.Command) error {
	if j.Apply && j.server == "" && j.token == "" && len(j.pins) == 0 && j.caFile == "" {
		return j.upgrade(ctx, cmd)
	}
	if err := j.checkFlags(cmd); err != nil {
		return err
	}
	if err := j.reachHub(ctx, cmd); err != nil {
		return err
	}
	if !j.Apply {
		printed, err := j.manifests(cmd, nil)
		if err == nil {
			_, err = fmt.Fprint(cmd.OutOrStdout(), printed)
		}
		return err
	}
	local, config, err := j.Connect()
	if err != nil {
		return err
	}
	install.CheckManaged(cmd, j.options.AuthType, config.Host)
	if err := install.CheckOCM(ctx, cmd, local, j.Kubectl, ocmPrograms(j.options.Namespace)...); err != nil {
		return err
	}
	running, program, err := install.Running(ctx, local, j.options.Namespace, ocm.AgentName)
	if err == nil {
		err = j.checkHubOfAgent(ctx, cmd, local, program.Args)
	}
	if err == nil {
		err = j.addOnAuth(ctx, cmd, local)
	}
	if err != nil {
		return err
	}
	printed, err := j.manifests(cmd, running)
	if err != nil {
		return err
	}
	joined, err := j.joined(ctx, local)
	if err == nil && joined != nil && j.absent {
		joined, err = nil, j.forget(ctx, cmd, local, joined)
	}
	if err != nil {
		return err
	}
	if err := j.ApplyAll(ctx, cmd, local, printed); err != nil {
		return err
	}
	switch {
	case !j.Wait && j.accepted && joined != nil:
		return cli.Say(cmd, "\nThe cluster is already accepted")
	case !j.Wait && j.accepted:
		return cli.Say(cmd,
			"\nThe cluster is already accepted. If its new agent gets no certificate, run: wid hub accept --clusters %s --context HUB", j.options.Cluster)
	case !j.Wait:
		return cli.Say(cmd, "\nNow accept the cluster: wid hub accept --clusters %s --context HUB", j.options.Cluster)
	}
	return cli.Await(ctx, cmd, func() (string, error) {
		joined, err := j.joined(ctx, local)
		if err != nil || joined != nil {
			return "", err
		}
		return fmt.Sprintf(
			"for the hub to let cluster %q in: wid hub accept --clusters %s --context HUB lets it in, and %s shows why not",
			j.options.Cluster, j.options.Cluster, j.Kubectl("kubectl -n "+j.options.Namespace+" get events")), nil
	})
}

// ocmPrograms write the Secret that the agent writes. In Singleton mode one
// program is both agents of Open Cluster Management. Its operator manages the
// default namespace, and an agent in another one runs beside it.
func ocmPrograms(namespace string) (programs []install.OCMProgram) {
	if namespace == agent.DefaultNamespace {
		programs = []install.OCMProgram{{Namespace: "open-cluster-management", App: "klusterlet"}}
	}
	return append(programs, install.OCMProgram{Namespace: namespace, App: "klusterlet-registration-agent"},
		install.OCMProgram{Namespace: namespace, App: "klusterlet-agent"})
}

// checkFlags finds mistakes before any request.
func (j *join) checkFlags(cmd *cobra.Command) error {
	if err := cmp.Or(j.checkAgent(), j.checkHub(cmd), j.Check()); err != nil {
		return err
	}
	if !j.Apply && !j.reveal && cli.IsTerminal(cmd.OutOrStdout()) {
		return cli.Usagef(
			"the manifests hold the credential of --hub-token: print them to a file or a pipe, or pass --apply or --reveal")
	}
	return nil
}

func (j *join) checkAgent() error {
	o := &j.options
	err := cmp.Or(checkName(o.Cluster), checkNamespace(o.Namespace), install.CheckAuthTypes(o.AuthType),
		j.arns.Check(o.AuthType))
	if err == nil && o.AuthType == registration.AuthTypeAWS {
		_, err = j.arns.Driver()
	}
	switch {
	case err != nil:
		return err
	case o.AddOnTokenSeconds != 0 && o.AddOnAuthType != registration.AuthTypeToken:
		return cli.Usagef("--%s needs --%s=%s", install.AddOnSecondsFlag, install.AddOnAuthFlag, registration.AuthTypeToken)
	case o.AddOnAuthType != "":
		return install.CheckAddOns(install.AddOnAuthFlag, o.AddOnTokenSeconds, o.AddOnAuthType)
	}
	return nil
}

func checkName(cluster string) error {
	if cluster == "" {
		return cli.Usagef("name the cluster with --cluster-name")
	}
	if err := registration.CheckClusterName(cluster); err != nil {
		return cli.Usagef("--cluster-name: %v", err)
	}
	return nil
}

func checkNamespace(namespace string) error {
	if err := manifests.CheckNamespace(namespace); err != nil {
		return cli.Usagef("--namespace: %v", err)
	}
	return nil
}

func (j *join) checkHub(cmd *cobra.Command) error {
	switch {
	case j.server == "":
		return cli.Usagef("name the hub's API server with --hub-apiserver, as https://hub.example:6443")
	case j.token == "":
		return cli.Usagef(
			"pass a bootstrap token, or the token of a ServiceAccount of the hub, with --hub-token; - reads it from standard input")
	case len(j.pins) > 0 && j.caFile != "":
		return cli.Usagef("--ca-cert-hash and --ca-file exclude each other")
	case len(j.pins) == 0 && j.caFile == "":
		return cli.Usagef(
			"pin the hub's CA with --ca-cert-hash, if --hub-token is a bootstrap token, or pass the CA with --ca-file")
	}
	if _, err := (&bootstrap.ClusterInfo{Server: j.server}).Encode(); err != nil {
		return cli.Usagef("--hub-apiserver: %v", err)
	}
	if j.options.AuthType == registration.AuthTypeCSR {
		return install.CheckHub(cmd, []string{j.options.AuthType}, j.server)
	}
	return nil
}

// manifests hold the credential. They keep what a Deployment that runs has of
// its own.
func (j *join) manifests(cmd *cobra.Command, running *appsv1.Deployment) (string, error) {
	j.options.Replicas, j.options.ImagePullSecrets = j.Replicas(cmd, running)
	j.options.Image, j.options.HubARN, j.options.ManagedARN = j.Image, j.arns.Hub, j.arns.Managed
	return manifests.Agent(j.options)
}

// reachHub finds the hub and the credential for the first contact, and tries
// it.
func (j *join) reachHub(ctx context.Context, cmd *cobra.Command) error {
	token, err := j.readToken(ctx, cmd)
	if err != nil {
		return err
	}
	bootstrapToken, notBootstrap := bootstrap.ParseToken(token)
	claims, notJWT := jwt.Parse(token)
	switch {
	case notBootstrap != nil && notJWT != nil:
		return cli.Usagef("--hub-token is neither a bootstrap token, <id>.<secret>, nor the token of a ServiceAccount")
	case notBootstrap != nil && j.caFile == "":
		return cli.Usagef(
			"--hub-token is the token of a ServiceAccount, which finds no CA: pass the hub's CA with --ca-file instead of --ca-cert-hash")
	case notJWT == nil && !claims.Expiry.IsZero() && !claims.Expiry.After(time.Now()):
		return cli.Usagef("the token of --hub-token expired at %s: create another one on the hub",
			claims.Expiry.UTC().Format(time.RFC3339))
	}
	info := &bootstrap.ClusterInfo{Server: strings.TrimRight(j.server, "/")}
	if j.caFile != "" {
		info.CAData, err = j.readCA(info)
	} else {
		info.CAData, err = j.discover(ctx, cmd, bootstrapToken)
	}
	if err != nil {
		return err
	}
	j.options.Hub, j.options.Token = info, token
	return j.try(ctx, info, token)
}

func (j *join) readToken(ctx context.Context, cmd *cobra.Command) (string, error) {
	if j.token != "-" {
		return j.token, nil
	}
	in, err := cli.InputOf(cmd)
	if err != nil {
		return "", err
	}
	content, err := input.Read(ctx, in)
	var unread *input.Error
	if errors.As(err, &unread) {
		err = &auth.Error{Reason: auth.ErrMisconfigured, Message: unread.Message, Remedy: unread.Remedy, Err: unread.Err}
	}
	return strings.TrimSpace(string(content)), err
}

func (j *join) readCA(info *bootstrap.ClusterInfo) ([]byte, error) {
	content, err := input.ReadFile(j.caFile)
	if err != nil {
		return nil, cli.Usagef("--ca-file: %v", err)
	}
	info.CAData = content
	certificates, err := info.Certificates()
	if err == nil && len(certificates) == 0 {
		err = errors.New("there is no certificate in it")
	}
	if err != nil {
		return nil, cli.Usagef("--ca-file %q: %v", j.caFile, err)
	}
	return content, nil
}

// tokenPatience is the time for the hub to sign cluster-info for a new token.
const tokenPatience = 10 * time.Second

// discover returns the CA that the hub proves by token and pins.
func (j *join) discover(ctx context.Context, cmd *cobra.Command, token bootstrap.Token) ([]byte, error) {
	pins, err := bootstrap.ParsePins(j.pins...)
	if err != nil {
		return nil, cli.Usagef("--ca-cert-hash: %v", err)
	}
	info, err := cli.Discover(ctx, cmd, []string{j.server}, token, tokenPatience, bootstrap.WithPins(pins),
		bootstrap.WithTimeout(j.Timeout), bootstrap.WithFinalCauses(bootstrap.CauseAnonymousForbidden))
	if err != nil {
		return nil, err
	}
	return info.CAData, nil
}

// try reads the ManagedCluster, as the agent will.
func (j *join) try(ctx context.Context, info *bootstrap.ClusterInfo, token string) error {
	config := &rest.Config{Host: info.Server, BearerToken: token,
		TLSClientConfig: rest.TLSClientConfig{CAData: info.CAData}}
	hub, err := cli.NewClient(config)
	if err != nil {
		return err
	}
	cluster := &ocm.ManagedCluster{}
	err = hub.Get(ctx, client.ObjectKey{Name: j.options.Cluster}, cluster)
	j.accepted = cluster.Spec.HubAcceptsClient
	operation := "try --hub-token at the hub " + info.Server
	switch {
	case apierrors.IsNotFound(err):
		j.absent = true
		return nil
	case apierrors.IsForbidden(err):
		return &auth.Error{Reason: auth.ErrDenied, Operation: operation, Err: err,
			Message: cli.OneLine(kubeerror.Message(err, token)),
			Remedy: fmt.Sprintf("bind that user to ClusterRole %q on the hub, or use a token of wid hub init",
				ocm.BootstrapRole)}
	}
	return cli.AnswerOf(err, operation)
}

// joined returns the Secret with the agent's own credential for this hub, nil
// if there is none.
func (j *join) joined(ctx context.Context, local client.Client) (*corev1.Secret, error) {
	secret, err := agentSecret(ctx, local, j.options.Namespace, j.options.Cluster)
	if err != nil {
		return nil, err
	}
	if serverOf(secret) != j.options.Hub.Server {
		return nil, nil //nolint:nilnil // the agent replaces what cannot be used
	}
	return secret, nil
}

// serverOf returns the address of the hub in a Secret, "" without one.
func serverOf(secret *corev1.Secret) string {
	k, err := kubeconfig.Parse(secret.Data[registration.SecretKeyKubeconfig])
	if err != nil {
		return ""
	}
	return k.Clusters[0].Cluster.Server
}

// checkHubOfAgent refuses to take the agent of the namespace from another hub.
// A hub that knows the agent's credential is the same one at a new address.
func (j *join) checkHubOfAgent(ctx context.Context, cmd *cobra.Command, local client.Client, args []string) error {
	o := &j.options
	own, err := agentSecret(ctx, local, o.Namespace, o.Cluster)
	if err != nil {
		return err
	}
	first := &corev1.Secret{}
	key := client.ObjectKey{Namespace: o.Namespace, Name: agent.DefaultBootstrapSecret}
	if err := local.Get(ctx, key, first); client.IgnoreNotFound(err) != nil {
		return cli.AnswerOf(err, fmt.Sprintf("read Secret %q", key))
	}
	server := cmp.Or(serverOf(own), serverOf(first))
	if server == "" || server == o.Hub.Server {
		return nil
	}
	if serverOf(own) != "" && j.isAnotherHub(ctx, own, args) {
		const remedy = "pass --namespace with another name to join this hub too, or leave the other one first: " +
			"wid unjoin --cluster-name %s --namespace %s"
		return cli.Problem(auth.ErrMisconfigured, fmt.Sprintf(remedy, o.Cluster, o.Namespace),
			"the agent in namespace %q joins this cluster to the hub %.300q, which is not the hub %.300q, "+
				"unless its credential has expired", o.Namespace, server,
			o.Hub.Server)
	}
	cmd.PrintErrf("wid: warning: the agent in namespace %q used the hub %.300q, and now uses %.300q: "+
		"pass --namespace with another name to keep both\n", o.Namespace, server, o.Hub.Server)
	return nil
}

// isAnotherHub reports whether the hub of this command refuses the agent's
// certificate as unknown. An IAM role names its hub. A token is not shown to a
// hub that may not be its own.
func (j *join) isAnotherHub(ctx context.Context, own *corev1.Secret, args []string) bool {
	if string(own.Data[ocm.SecretKeyAuthType]) == registration.AuthTypeAWS {
		return !slices.Contains(joinValues(args), "--"+install.HubARNFlag+"="+j.arns.Hub)
	}
	hub, user, err := j.asAgent(own)
	if err != nil || user.Token != "" {
		return err == nil // the agent replaces what cannot be used
	}
	return apierrors.IsUnauthorized(hub.Get(ctx, client.ObjectKey{Name: j.options.Cluster}, &ocm.ManagedCluster{}))
}

// forget deletes the agent's credential for a ManagedCluster that the hub no
// longer has. The agent would wait with it for ever, because the hub refuses it
// like the credential of a cluster that is not accepted.
func (j *join) forget(ctx context.Context, cmd *cobra.Command, local client.Client, secret *corev1.Secret) error {
	if err := local.Delete(ctx, secret,
		client.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion}); err != nil {
		return cli.AnswerOf(err, "delete the credential of a deleted ManagedCluster")
	}
	return cli.Say(cmd,
		"The hub has no ManagedCluster %q: its agent's credential in Secret %q is deleted, so that the agent registers again",
		j.options.Cluster, secret.Name)
}

// upgrade applies the manifests again to a cluster that has an agent. The agent
// keeps its credential, its bootstrap Secret, and its flags except for the
// flags of the command. So the command needs neither a token nor the address of
// the hub.
func (j *join) upgrade(ctx context.Context, cmd *cobra.Command) error {
	if err := j.Check(); err != nil {
		return err
	}
	local, _, err := j.Connect()
	if err != nil {
		return err
	}
	running, program, err := install.Running(ctx, local, j.options.Namespace, ocm.AgentName)
	if err != nil {
		return err
	}
	if running == nil {
		return cli.Usagef(
			"there is no agent to upgrade in namespace %q: name another one with --namespace. To join the cluster, "+
				"pass --cluster-name, --hub-apiserver, --hub-token, and --ca-cert-hash or --ca-file", j.options.Namespace)
	}
	for _, arg := range program.Args {
		if strings.Contains(arg, "$(") {
			return cli.Problem(auth.ErrMisconfigured, "change ?ref= in the overlay, and apply it again",
				"an overlay of config/agent has installed this agent, since its argument %.100q refers to a variable: wid join cannot upgrade it", arg)
		}
	}
	if j.options.ExtraArgs, err = j.take(cmd, program.Args); err != nil {
		return err
	}
	if err := j.checkAgent(); err != nil {
		return err
	}
	if _, err := agentSecret(ctx, local, j.options.Namespace, j.options.Cluster); err != nil {
		return err
	}
	if err := install.CheckOCM(ctx, cmd, local, j.Kubectl, ocmPrograms(j.options.Namespace)...); err != nil {
		return err
	}
	printed, err := j.manifests(cmd, running)
	if err != nil {
		return err
	}
	if err := j.Install(ctx, cmd, j.KubeFile, local, printed, j.options.Namespace, ocm.AgentName); err != nil {
		return err
	}
	return cli.Say(cmd,
		"\nThe agent of cluster %q has the image %.300q, before %.300q. Its flags: %.1000s. Its credential and its bootstrap Secret stay", j.options.Cluster,
		j.Image, program.Image, cli.OneLine(strings.Join(j.options.Args(), " ")))
}

// take sets the flags that the user left out to the running agent's values, and
// returns the agent's other flags.
func (j *join) take(cmd *cobra.Command, args []string) (others []string, err error) {
	names := []string{"cluster-name", "namespace", "registration-auth", install.HubARNFlag, install.ManagedARNFlag,
		install.AddOnAuthFlag, install.AddOnSecondsFlag}
	for _, arg := range joinValues(args) {
		name, value, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		switch {
		case arg == "--leader-elect": // the manifests have it
		case !slices.Contains(names, name):
			others = append(others, arg)
		case !cmd.Flags().Changed(name):
			if err := cmd.Flags().Set(name, value); err != nil {
				return nil, cli.Usagef("the agent that runs has --%s=%.100q: %v", name, value, err)
			}
		}
	}
	j.options.HubARN, j.options.ManagedARN = j.arns.Hub, j.arns.Managed
	return others, nil
}

// joinValues turns --name value into --name=value.
func joinValues(args []string) (joined []string) {
	for _, arg := range args {
		if last := len(joined) - 1; last >= 0 && !strings.HasPrefix(arg, "-") && !strings.Contains(joined[last], "=") {
			joined[last] += "=" + arg
			continue
		}
		joined = append(joined, arg)
	}
	return joined
}
