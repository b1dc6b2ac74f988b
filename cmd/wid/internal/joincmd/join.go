// Package joincmd is wid join and wid unjoin.
package joincmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/plugin"
	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/install"
	"github.com/workloadid/workloadid/internal/jwt"
	"github.com/workloadid/workloadid/internal/kubeerror"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// AgentName is the name of the agent's Deployment, and of its ServiceAccount in registration.AgentManifest.
const AgentName = "registration-agent"

type join struct {
	cli.Side
	install.Installing
	cluster, authType     string
	arns                  install.ClusterARNs
	addOns                addOnFlags // without auth type: the agent gets no rights to store credentials of add-ons
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
			"hold that credential. --hub-token is a bootstrap token with --ca-cert-hash, or a ServiceAccount's token with --ca-file.",
		Example: "  wid join --hub-token - --hub-apiserver https://hub.example:6443 --ca-cert-hash sha256:… \\\n" +
			"    --cluster-name managed-0 --image registry.example/agent:v1 --apply --wait <token",
	}
	j.Bind(cmd, "wid-agent", "the hub has accepted the cluster and the agent has a credential of its own")
	f := cmd.Flags()
	f.StringVar(&j.cluster, "cluster-name", "", "name of the cluster on the hub, a DNS label")
	f.StringVar(&j.authType, "registration-auth", registration.AuthTypeCSR, "auth type to register with, csr or "+registration.AuthTypeAWS)
	cli.Offer(f, "registration-auth", registration.AuthTypeCSR, registration.AuthTypeAWS)
	j.arns.BindHub(f)
	j.arns.BindManaged(f)
	f.StringVar(&j.addOns.auth, install.AddOnAuthFlag, "", "auth type by which add-ons reach the hub's API server, csr or token; without it the agent gets no rights to store their credentials")
	cli.Offer(f, install.AddOnAuthFlag, registration.AuthTypeCSR, registration.AuthTypeToken)
	f.Int64Var(&j.addOns.expirationSeconds, install.AddOnSecondsFlag, 0, "lifetime of add-on tokens that the auth type token asks for, in seconds; 0 for one year")
	f.StringVar(&j.server, "hub-apiserver", "", "https URL of the hub's API server")
	f.StringVar(&j.token, "hub-token", "", "credential for the first contact, - for standard input")
	f.StringSliceVar(&j.pins, "ca-cert-hash", nil, "pin of the hub's CA, sha256:<hex>, if the token is a bootstrap token; may be repeated")
	f.StringVar(&j.caFile, "ca-file", "", "PEM file with the hub's CA, instead of --ca-cert-hash")
	f.BoolVar(&j.reveal, "reveal", false, "print the manifests to a terminal too, with the credential")
	cli.Rare(f, "force-conflicts", install.AddOnAuthFlag, install.AddOnSecondsFlag)
	return j.Command(cmd, "the cluster that joins", j.run)
}

func (j *join) run(ctx context.Context, cmd *cobra.Command) error {
	if err := j.checkFlags(cmd); err != nil {
		return err
	}
	info, token, err := j.hub(ctx, cmd)
	if err != nil {
		return err
	}
	manifests, err := j.manifests(info, token)
	if err != nil {
		return err
	}
	if !j.Apply {
		_, err := fmt.Fprint(cmd.OutOrStdout(), manifests)
		return err
	}
	local, config, err := j.Connect()
	if err != nil {
		return err
	}
	install.CheckManaged(cmd, j.authType, config.Host)
	joined, err := j.joined(ctx, local, info.Server)
	if err != nil {
		return err
	}
	if err := j.ApplyAll(ctx, cmd, local, manifests); err != nil {
		return err
	}
	switch {
	case !j.Wait && j.accepted && joined:
		return cli.Say(cmd, "\nThe cluster is already accepted")
	case !j.Wait && j.accepted:
		return cli.Say(cmd, "\nThe cluster is already accepted. If its new agent gets no certificate, run on the hub: wid hub accept --clusters %s", j.cluster)
	case !j.Wait:
		return cli.Say(cmd, "\nNow let the cluster in on the hub: wid hub accept --clusters %s", j.cluster)
	}
	return cli.Await(ctx, cmd, func() (string, error) {
		joined, err := j.joined(ctx, local, info.Server)
		if err != nil || joined {
			return "", err
		}
		return fmt.Sprintf("for the hub to let cluster %q in: wid hub accept --clusters %s there, and kubectl -n %s get events here", j.cluster, j.cluster, agent.DefaultNamespace), nil
	})
}

// checkFlags finds mistakes before any request.
func (j *join) checkFlags(cmd *cobra.Command) error {
	if j.cluster == "" {
		return cli.Usagef("name the cluster with --cluster-name")
	}
	if err := registration.CheckClusterName(j.cluster); err != nil {
		return cli.Usagef("--cluster-name: %v", err)
	}
	if _, err := install.AgentDriver(j.authType, &j.arns); err != nil {
		return err
	}
	if j.addOns.expirationSeconds != 0 && j.addOns.auth != registration.AuthTypeToken {
		return cli.Usagef("--%s needs --%s=%s", install.AddOnSecondsFlag, install.AddOnAuthFlag, registration.AuthTypeToken)
	}
	if j.addOns.auth != "" {
		if err := install.CheckAddOns(install.AddOnAuthFlag, j.addOns.expirationSeconds, j.addOns.auth); err != nil {
			return err
		}
	}
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
	if j.authType == registration.AuthTypeCSR && install.IsEKS(j.server) {
		if err := install.CheckHub(cmd, []string{j.authType}, j.server); err != nil {
			return err
		}
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

// hub returns the hub and the credential for the first contact, which it has tried.
func (j *join) hub(ctx context.Context, cmd *cobra.Command) (*bootstrap.ClusterInfo, string, error) {
	token, err := j.readToken(ctx, cmd)
	if err != nil {
		return nil, "", err
	}
	bootstrapToken, notBootstrap := bootstrap.ParseToken(token)
	claims, notJWT := jwt.Parse(token)
	switch {
	case notBootstrap != nil && notJWT != nil:
		return nil, "", cli.Usagef("--hub-token is neither a bootstrap token, <id>.<secret>, nor the token of a ServiceAccount")
	case notBootstrap != nil && j.caFile == "":
		return nil, "", cli.Usagef("--hub-token is the token of a ServiceAccount, which finds no CA: pass the hub's CA with --ca-file instead of --ca-cert-hash")
	case notJWT == nil && !claims.Expiry.IsZero() && !claims.Expiry.After(time.Now()):
		return nil, "", cli.Usagef("the token of --hub-token expired at %s: create another one on the hub", claims.Expiry.UTC().Format(time.RFC3339))
	}
	info := &bootstrap.ClusterInfo{Server: strings.TrimRight(j.server, "/")}
	if j.caFile != "" {
		info.CAData, err = j.readCA(info)
	} else {
		info.CAData, err = j.discover(ctx, cmd, bootstrapToken)
	}
	if err != nil {
		return nil, "", err
	}
	return info, token, j.try(ctx, info, token)
}

func (j *join) readToken(ctx context.Context, cmd *cobra.Command) (string, error) {
	if j.token != "-" {
		return j.token, nil
	}
	in, err := cli.InputOf(cmd)
	if err != nil {
		return "", err
	}
	content, err := plugin.Read(ctx, in)
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
	var info *bootstrap.ClusterInfo
	var progress atomic.Value
	progress.Store("")
	err = cli.During(ctx, cmd, func() string { return fmt.Sprintf("for the hub's CA: %s", progress.Load()) }, func() (err error) {
		info, err = bootstrap.Discover(ctx, []string{j.server}, token, bootstrap.WithPins(pins), bootstrap.WithTimeout(j.Timeout),
			bootstrap.WithProgress(func(s string) { progress.Store(s) }))
		return err
	})
	if err == nil {
		return info.CAData, nil
	}
	e := &auth.Error{Reason: auth.ErrMisconfigured, Operation: "find the hub's CA", Err: err, Message: cli.OneLine(err.Error()), Remedy: "run wid doctor bootstrap to find the cause"}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		e.Reason = auth.ErrUnavailable
	case errors.Is(err, bootstrap.ErrPins) || errors.Is(err, bootstrap.ErrSignature):
		e.Reason = auth.ErrDenied
	}
	return nil, e
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
	err = hub.Get(ctx, client.ObjectKey{Name: j.cluster}, cluster)
	j.accepted = cluster.Spec.HubAcceptsClient
	operation := "try --hub-token at the hub " + info.Server
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsForbidden(err):
		return &auth.Error{Reason: auth.ErrDenied, Operation: operation, Err: err, Message: cli.OneLine(kubeerror.Message(err, token)),
			Remedy: fmt.Sprintf("bind that user to ClusterRole %q on the hub, or use a token of wid hub init", registration.BootstrapRole)}
	}
	return cli.AnswerOf(err, operation)
}

// manifests hold the credential.
func (j *join) manifests(info *bootstrap.ClusterInfo, token string) (string, error) {
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["hub"] = &clientcmdapi.Cluster{Server: info.Server, CertificateAuthorityData: info.CAData}
	kubeconfig.AuthInfos["bootstrap"] = &clientcmdapi.AuthInfo{Token: token}
	kubeconfig.Contexts["hub"] = &clientcmdapi.Context{Cluster: "hub", AuthInfo: "bootstrap"}
	kubeconfig.CurrentContext = "hub"
	content, err := clientcmd.Write(*kubeconfig)
	if err != nil {
		return "", err
	}
	secret, err := yaml.Marshal(map[string]any{"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"namespace": agent.DefaultNamespace, "name": agent.DefaultBootstrapSecret},
		"data":     map[string]any{registration.SecretKeyKubeconfig: content}})
	if err != nil {
		return "", err
	}
	rbac, account, err := j.agentManifest()
	if err != nil {
		return "", err
	}
	deployment, err := j.Deployment(agent.DefaultNamespace, AgentName, account, j.args()...)
	return install.JoinManifests(rbac, string(secret), deployment), err
}

// addOnFlags holds the settings of add-ons in the flags of the agent program.
type addOnFlags struct {
	auth              string
	expirationSeconds int64
}

// args are the flags of the agent program.
func (j *join) args() []string {
	args := append([]string{"--cluster-name=" + j.cluster, "--registration-auth=" + j.authType}, j.arns.Args()...)
	if j.addOns.auth != "" {
		args = append(args, "--"+install.AddOnAuthFlag+"="+j.addOns.auth)
	}
	if j.addOns.expirationSeconds != 0 {
		args = append(args, fmt.Sprintf("--%s=%d", install.AddOnSecondsFlag, j.addOns.expirationSeconds))
	}
	return args
}

// agentManifest returns the manifests of the agent and its ServiceAccount, which with aws-irsa has the name that its role trusts.
func (j *join) agentManifest() (manifest, account string, err error) {
	manifest, account = registration.AgentManifest, AgentName
	if j.addOns.auth != "" {
		manifest = install.JoinManifests(manifest, registration.AgentAddOnManifest)
	}
	if j.authType != registration.AuthTypeAWS {
		return manifest, account, nil
	}
	hub, managed, err := j.arns.Pair()
	account = awsirsa.DefaultKlusterlet + "-registration-sa"
	return install.WithRole(manifest, AgentName, account, awsirsa.ManagedRoleARN(hub, managed)), account, err
}

// joined reports whether the agent has a credential of its own for this hub.
func (j *join) joined(ctx context.Context, local client.Client, server string) (bool, error) {
	secret, err := agentSecret(ctx, local, j.cluster)
	if err != nil {
		return false, err
	}
	kubeconfig, err := clientcmd.Load(secret.Data[registration.SecretKeyKubeconfig])
	if err != nil {
		return false, nil //nolint:nilerr // the agent replaces what cannot be used
	}
	for _, cluster := range kubeconfig.Clusters {
		if cluster.Server == server {
			return true, nil
		}
	}
	return false, nil
}

// agentSecret reads the agent's Secret, empty if there is none. It refuses that of another cluster name.
func agentSecret(ctx context.Context, local client.Client, cluster string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: agent.DefaultNamespace, Name: ocm.HubKubeconfigSecret}
	if err := local.Get(ctx, key, secret); err != nil {
		return secret, cli.AnswerOf(client.IgnoreNotFound(err), fmt.Sprintf("read Secret %q", key))
	}
	if name := string(secret.Data[registration.SecretKeyClusterName]); name != "" && name != cluster {
		return secret, &auth.Error{Reason: auth.ErrMisconfigured, Message: fmt.Sprintf("this cluster is registered as %.100q, not as %q", name, cluster),
			Remedy: fmt.Sprintf("use that name with --cluster-name, or another cluster with --context; wid unjoin --cluster-name %.100q ends that registration", name)}
	}
	return secret, nil
}

// NewUnjoin returns wid unjoin.
func NewUnjoin() *cobra.Command {
	s := &cli.Side{}
	var name string
	var purge, force bool
	var arns install.ClusterARNs
	cmd := &cobra.Command{
		Use:   "unjoin",
		Short: "Take a cluster out of its hub, and remove its agent",
		Long: "Take a cluster out of its hub. It withdraws the acceptance with the agent's own credential, then removes the agent and\n" +
			"its Secrets. If the hub does not answer, it removes nothing without --force.",
		Example: "  wid unjoin --cluster-name managed-0 --context managed-0",
	}
	f := cmd.Flags()
	f.StringVar(&name, "cluster-name", "", "name of the cluster on the hub")
	f.BoolVar(&purge, "purge", false, "remove the agent's RBAC too, and its namespace with all that is in it")
	f.BoolVar(&force, "force", false, "remove the agent even if the hub cannot be told")
	arns.BindHub(f)
	arns.BindManaged(f)
	return s.Command(cmd, "the cluster that leaves", func(ctx context.Context, cmd *cobra.Command) error {
		if name == "" {
			return cli.Usagef("name the cluster with --cluster-name")
		}
		if err := registration.CheckClusterName(name); err != nil {
			return cli.Usagef("--cluster-name: %v", err)
		}
		local, _, err := s.Connect()
		if err != nil {
			return err
		}
		if err := withdraw(ctx, cmd, local, name, &arns, force); err != nil {
			return err
		}
		return removeAgent(ctx, cmd, local, name, purge)
	})
}

var errNoCredential = errors.New("the agent has no credential of its own yet")

// withdraw informs the hub. An agent without access there only causes a warning.
func withdraw(ctx context.Context, cmd *cobra.Command, local client.Client, name string, arns *install.ClusterARNs, force bool) error {
	secret, err := agentSecret(ctx, local, name)
	if err != nil {
		return err
	}
	err = tell(ctx, local, name, secret, arns)
	if err == nil {
		return cli.Say(cmd, "cluster %q withdrawn: the hub takes away its access", name)
	}
	var usage *cli.UsageError
	switch {
	case errors.Is(err, errNoCredential) || errors.Is(err, agent.ErrNotJoined) || apierrors.IsForbidden(err) || force:
		cmd.PrintErrf("wid: warning: the hub was not informed; run there: wid hub deny --clusters %s (%s)\n", name, cli.OneLine(err.Error()))
		return nil
	case errors.As(err, &usage):
		return err
	}
	return &auth.Error{Reason: auth.ErrUnavailable, Err: err, Operation: fmt.Sprintf("withdraw cluster %q", name), Message: cli.OneLine(kubeerror.Message(err)),
		Remedy: "correct that, or pass --force to remove the agent without informing the hub"}
}

// tell withdraws the cluster at the hub with the credential in the Secret, by the driver that made it. The driver for certificates also
// serves those that are unknown here, as long as their kubeconfig runs no program.
func tell(ctx context.Context, local client.Client, name string, secret *corev1.Secret, arns *install.ClusterARNs) error {
	if len(secret.Data[registration.SecretKeyKubeconfig]) == 0 {
		return errNoCredential
	}
	driver, err := registration.Driver(csr.New(csr.Options{})), error(nil)
	if string(secret.Data[registration.SecretKeyAuthType]) == registration.AuthTypeAWS {
		driver, err = arns.Driver()
	}
	if err != nil {
		return err
	}
	withdrawing, err := agent.New(agent.Options{Cluster: name, Driver: driver, Local: local,
		NewHubClient: func(config *rest.Config) (client.Client, error) {
			cli.BoundAnswers(config)
			return cli.NewRegistrationClient(config)
		}})
	if err != nil {
		return err
	}
	return withdrawing.Unjoin(ctx)
}

// removeAgent removes the Deployment and the bootstrap Secret first, without which nothing recreates the agent's own Secret and those of
// add-ons. The namespace of add-ons stays: their programs may run there.
func removeAgent(ctx context.Context, cmd *cobra.Command, local client.Client, name string, purge bool) error {
	var objects []*unstructured.Unstructured
	if purge {
		all, err := install.ParseManifests(install.JoinManifests(registration.AgentManifest, registration.AgentAddOnManifest))
		if err != nil {
			return err
		}
		objects = slices.DeleteFunc(all, func(o *unstructured.Unstructured) bool {
			return o.GetKind() == "Namespace" && o.GetName() == agent.DefaultAddOnNamespace
		})
	}
	secrets := &unstructured.UnstructuredList{}
	secrets.SetAPIVersion("v1")
	secrets.SetKind("SecretList")
	err := local.List(ctx, secrets, client.MatchingLabels{agent.AddOnClusterLabel: name}, client.HasLabels{addon.NameLabel})
	switch {
	case apierrors.IsForbidden(err):
		cmd.PrintErrf("wid: warning: the Secrets of add-ons stay, since you may not list Secrets of all namespaces: delete those with the label %s=%s\n",
			agent.AddOnClusterLabel, name)
	case err != nil:
		return cli.AnswerOf(err, "list the Secrets of add-ons")
	}
	for i := range secrets.Items {
		objects = append(objects, &secrets.Items[i])
	}
	for _, o := range []struct{ version, kind, name string }{
		{"v1", "Secret", ocm.HubKubeconfigSecret}, {"v1", "Secret", agent.DefaultBootstrapSecret}, {"apps/v1", "Deployment", AgentName},
	} {
		object := &unstructured.Unstructured{}
		object.SetAPIVersion(o.version)
		object.SetKind(o.kind)
		object.SetNamespace(agent.DefaultNamespace)
		object.SetName(o.name)
		objects = append(objects, object)
	}
	return install.RemoveAll(ctx, cmd, local, objects)
}
