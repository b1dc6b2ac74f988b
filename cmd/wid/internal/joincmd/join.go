// Package joincmd is wid join and wid unjoin.
package joincmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/install"
	"github.com/workloadid/workloadid/internal/jwt"
	"github.com/workloadid/workloadid/internal/kubeerror"
	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/internal/stdin"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
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
	accepted              bool // on the hub
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
	f.StringVar(&j.options.AuthType, "registration-auth", registration.AuthTypeCSR, "auth type to register with, csr or "+registration.AuthTypeAWS)
	cli.Offer(f, "registration-auth", registration.AuthTypeCSR, registration.AuthTypeAWS)
	j.arns.BindHub(f)
	j.arns.BindManaged(f)
	f.StringVar(&j.options.AddOnAuthType, install.AddOnAuthFlag, "", "auth type by which add-ons reach the hub's API server, csr or token; without it the agent gets no rights to store their credentials")
	cli.Offer(f, install.AddOnAuthFlag, registration.AuthTypeCSR, registration.AuthTypeToken)
	f.Int64Var(&j.options.AddOnTokenSeconds, install.AddOnSecondsFlag, 0, "lifetime of add-on tokens that the auth type token asks for, in seconds; 0 for one year")
	f.StringVar(&j.server, "hub-apiserver", "", "https URL of the hub's API server")
	f.StringVar(&j.token, "hub-token", "", "credential for the first contact, - for standard input")
	f.StringSliceVar(&j.pins, "ca-cert-hash", nil, "pin of the hub's CA, sha256:<hex>, if the token is a bootstrap token; may be repeated")
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
	j.options.Replicas, j.options.ImagePullSecrets = j.Replicas(cmd, nil)
	printed, err := j.manifests()
	if err != nil {
		return err
	}
	if !j.Apply {
		_, err := fmt.Fprint(cmd.OutOrStdout(), printed)
		return err
	}
	local, config, err := j.Connect()
	if err != nil {
		return err
	}
	install.CheckManaged(cmd, j.options.AuthType, config.Host)
	joined, err := j.joined(ctx, local)
	if err != nil {
		return err
	}
	running, _, err := install.Running(ctx, local, agent.DefaultNamespace, regname.AgentName)
	if err != nil {
		return err
	}
	j.options.Replicas, j.options.ImagePullSecrets = j.Replicas(cmd, running)
	if printed, err = j.manifests(); err != nil {
		return err
	}
	if err := j.ApplyAll(ctx, cmd, local, printed); err != nil {
		return err
	}
	switch {
	case !j.Wait && j.accepted && joined:
		return cli.Say(cmd, "\nThe cluster is already accepted")
	case !j.Wait && j.accepted:
		return cli.Say(cmd, "\nThe cluster is already accepted. If its new agent gets no certificate, run: wid hub accept --clusters %s --context HUB", j.options.Cluster)
	case !j.Wait:
		return cli.Say(cmd, "\nNow let the cluster in: wid hub accept --clusters %s --context HUB", j.options.Cluster)
	}
	return cli.Await(ctx, cmd, func() (string, error) {
		joined, err := j.joined(ctx, local)
		if err != nil || joined {
			return "", err
		}
		return fmt.Sprintf("for the hub to let cluster %q in: wid hub accept --clusters %s --context HUB lets it in, and %s shows why not", j.options.Cluster, j.options.Cluster, j.Kubectl("kubectl -n "+agent.DefaultNamespace+" get events")), nil
	})
}

// checkFlags finds mistakes before any request.
func (j *join) checkFlags(cmd *cobra.Command) error {
	if err := j.checkAgent(); err != nil {
		return err
	}
	if err := j.checkHub(cmd); err != nil {
		return err
	}
	if err := j.Check(); err != nil {
		return err
	}
	out, ok := cmd.OutOrStdout().(*os.File)
	if ok && !j.Apply && !j.reveal && term.IsTerminal(int(out.Fd())) { //nolint:gosec // a file descriptor fits
		return cli.Usagef("the manifests hold the credential of --hub-token: print them to a file or a pipe, or pass --apply or --reveal")
	}
	return nil
}

func (j *join) checkAgent() error {
	if j.options.Cluster == "" {
		return cli.Usagef("name the cluster with --cluster-name")
	}
	if err := registration.CheckClusterName(j.options.Cluster); err != nil {
		return cli.Usagef("--cluster-name: %v", err)
	}
	if err := j.checkAuthType(); err != nil {
		return err
	}
	if j.options.AddOnTokenSeconds != 0 && j.options.AddOnAuthType != registration.AuthTypeToken {
		return cli.Usagef("--%s needs --%s=%s", install.AddOnSecondsFlag, install.AddOnAuthFlag, registration.AuthTypeToken)
	}
	if j.options.AddOnAuthType != "" {
		if err := install.CheckAddOns(install.AddOnAuthFlag, j.options.AddOnTokenSeconds, j.options.AddOnAuthType); err != nil {
			return err
		}
	}
	return nil
}

func (j *join) checkHub(cmd *cobra.Command) error {
	switch {
	case j.server == "":
		return cli.Usagef("name the hub's API server with --hub-apiserver, as https://hub.example:6443")
	case j.token == "":
		return cli.Usagef("pass a bootstrap token, or the token of a ServiceAccount of the hub, with --hub-token; - reads it from standard input")
	case len(j.pins) > 0 && j.caFile != "":
		return cli.Usagef("--ca-cert-hash and --ca-file exclude each other")
	case len(j.pins) == 0 && j.caFile == "":
		return cli.Usagef("pin the hub's CA with --ca-cert-hash, if --hub-token is a bootstrap token, or pass the CA with --ca-file")
	}
	if _, err := (&bootstrap.ClusterInfo{Server: j.server}).Encode(); err != nil {
		return cli.Usagef("--hub-apiserver: %v", err)
	}
	if j.options.AuthType == registration.AuthTypeCSR {
		return install.CheckHub(cmd, []string{j.options.AuthType}, j.server)
	}
	return nil
}

func (j *join) checkAuthType() error {
	if err := cmp.Or(install.CheckAuthTypes(j.options.AuthType), j.arns.Check(j.options.AuthType)); err != nil || j.options.AuthType != registration.AuthTypeAWS {
		return err
	}
	_, err := j.arns.Driver()
	return err
}

// manifests hold the credential.
func (j *join) manifests() (string, error) {
	j.options.Image, j.options.HubARN, j.options.ManagedARN = j.Image, j.arns.Hub, j.arns.Managed
	return manifests.Agent(j.options)
}

// reachHub finds the hub and the credential for the first contact, and tries it.
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
		return cli.Usagef("--hub-token is the token of a ServiceAccount, which finds no CA: pass the hub's CA with --ca-file instead of --ca-cert-hash")
	case notJWT == nil && !claims.Expiry.IsZero() && !claims.Expiry.After(time.Now()):
		return cli.Usagef("the token of --hub-token expired at %s: create another one on the hub", claims.Expiry.UTC().Format(time.RFC3339))
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
	content, err := stdin.Read(ctx, in)
	return strings.TrimSpace(string(content)), err
}

func (j *join) readCA(info *bootstrap.ClusterInfo) ([]byte, error) {
	content, err := cli.ReadBounded(j.caFile)
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

// discover returns the CA that the hub proves by token and pins.
func (j *join) discover(ctx context.Context, cmd *cobra.Command, token bootstrap.Token) ([]byte, error) {
	pins, err := bootstrap.ParsePins(j.pins...)
	if err != nil {
		return nil, cli.Usagef("--ca-cert-hash: %v", err)
	}
	info, err := cli.Discover(ctx, cmd, []string{j.server}, token, bootstrap.WithPins(pins), bootstrap.WithTimeout(j.Timeout))
	if err != nil {
		return nil, err
	}
	return info.CAData, nil
}

// try reads the ManagedCluster, as the agent will.
func (j *join) try(ctx context.Context, info *bootstrap.ClusterInfo, token string) error {
	config := &rest.Config{Host: info.Server, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: info.CAData}}
	cli.BoundAnswers(config)
	hub, err := cli.NewRegistrationClient(config)
	if err != nil {
		return err
	}
	cluster := &ocm.ManagedCluster{}
	err = hub.Get(ctx, client.ObjectKey{Name: j.options.Cluster}, cluster)
	j.accepted = cluster.Spec.HubAcceptsClient
	operation := "try --hub-token at the hub " + info.Server
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsForbidden(err):
		return &auth.Error{Reason: auth.ErrDenied, Operation: operation, Err: err, Message: cli.OneLine(kubeerror.Message(err, token)),
			Remedy: fmt.Sprintf("bind that user to ClusterRole %q on the hub, or use a token of wid hub init", regname.BootstrapRole)}
	}
	return cli.AnswerOf(err, operation)
}

// joined reports whether the agent has a credential of its own for this hub.
func (j *join) joined(ctx context.Context, local client.Client) (bool, error) {
	secret, err := agentSecret(ctx, local, j.options.Cluster)
	if err != nil {
		return false, err
	}
	kubeconfig, err := clientcmd.Load(secret.Data[registration.SecretKeyKubeconfig])
	if err != nil {
		return false, nil //nolint:nilerr // the agent replaces what cannot be used
	}
	for _, cluster := range kubeconfig.Clusters {
		if cluster.Server == j.options.Hub.Server {
			return true, nil
		}
	}
	return false, nil
}
