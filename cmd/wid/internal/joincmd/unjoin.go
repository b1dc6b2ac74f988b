package joincmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/install"
	"github.com/workloadid/workloadid/internal/kubeerror"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/manifests"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// NewUnjoin returns wid unjoin.
func NewUnjoin() *cobra.Command {
	s := &cli.Side{}
	var name, namespace string
	var purge, force, keep bool
	var arns install.ClusterARNs
	cmd := &cobra.Command{
		Use:   "unjoin",
		Short: "Take a cluster out of its hub, and remove its agent",
		Long: "Take a cluster out of its hub. It withdraws the acceptance with the agent's own credential, then removes the agent and\n" +
			"its Secrets. If the hub does not answer, it removes nothing without --force. With --keep-cluster it removes the agent and its\n" +
			"RBAC alone, so that an agent of Open Cluster Management goes on with the same Secrets.",
		Example: "  wid unjoin --cluster-name managed-0 --context managed-0",
	}
	f := cmd.Flags()
	f.StringVar(&name, "cluster-name", "", "name of the cluster on the hub")
	install.BindNamespace(f, &namespace)
	f.BoolVar(&purge, "purge", false, "remove the agent's RBAC too, and its namespace with all that is in it")
	f.BoolVar(&force, "force", false, "remove the agent even if the hub cannot be told")
	f.BoolVar(&keep, "keep-cluster", false, "leave the cluster in its hub, and keep all Secrets for another agent")
	arns.BindHub(f)
	arns.BindManaged(f)
	return s.Command(cmd, "the cluster that leaves", func(ctx context.Context, cmd *cobra.Command) error {
		if err := cmp.Or(checkName(name), checkNamespace(namespace)); err != nil {
			return err
		}
		local, _, err := s.Connect()
		if err != nil {
			return err
		}
		if keep {
			return leave(ctx, cmd, local, namespace, name, purge || force)
		}
		if err := checkInstalled(ctx, local, namespace); err != nil {
			return err
		}
		if err := withdraw(ctx, cmd, local, namespace, name, &arns, force); err != nil {
			return err
		}
		return removeAgent(ctx, cmd, local, namespace, name, purge)
	})
}

// checkInstalled refuses a namespace that is not an agent's, which --purge would
// delete. The Role stays until then. The default name is reserved for agents.
func checkInstalled(ctx context.Context, local client.Client, namespace string) error {
	if namespace == agent.DefaultNamespace {
		return nil
	}
	err := local.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ocm.AgentName}, &rbacv1.Role{})
	if apierrors.IsNotFound(err) {
		return cli.Usagef("--namespace: wid join has installed no agent in namespace %q: "+
			"kubectl get deployments --all-namespaces --field-selector metadata.name=%s lists the agents", namespace, ocm.AgentName)
	}
	return cli.AnswerOf(err, fmt.Sprintf("read Role %q", namespace+"/"+ocm.AgentName))
}

// leave removes the agent without a word to the hub. The namespace and the
// Secrets stay for another agent.
func leave(ctx context.Context, cmd *cobra.Command, local client.Client, namespace, name string, more bool) error {
	if more {
		return cli.Usagef("--keep-cluster excludes --purge and --force: it removes less")
	}
	if _, err := agentSecret(ctx, local, namespace, name); err != nil {
		return err
	}
	objects, err := manifests.AgentObjects(namespace, true)
	if err != nil {
		return err
	}
	return install.RemoveAll(ctx, cmd, local, slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "Secret" || o.GetKind() == "Namespace"
	}))
}

var errNoCredential = errors.New("the agent has no credential of its own yet")

// withdraw informs the hub. An agent without access there only causes a
// warning.
func withdraw(ctx context.Context, cmd *cobra.Command, local client.Client, namespace, name string,
	arns *install.ClusterARNs, force bool) error {
	secret, err := agentSecret(ctx, local, namespace, name)
	if err != nil {
		return err
	}
	err = withdrawWith(ctx, local, name, secret, arns)
	if err == nil {
		return cli.Say(cmd, "cluster %q withdrawn: the hub %.300q takes away its access", name, serverOf(secret))
	}
	switch {
	case errors.Is(err, errNoCredential) || errors.Is(err, agent.ErrNotJoined) || apierrors.IsForbidden(err) || force:
		cmd.PrintErrf("wid: warning: the hub was not informed; run there: wid hub deny --clusters %s (%s)\n", name,
			cli.OneLine(err.Error()))
		return nil
	case errors.As(err, new(*cli.UsageError)):
		return err
	}
	e := &auth.Error{Reason: auth.ErrUnavailable, Err: err, Operation: fmt.Sprintf("withdraw cluster %q", name),
		Message: cli.OneLine(kubeerror.Message(err)),
		Remedy:  "correct that, or pass --force to remove the agent without informing the hub"}
	if apierrors.IsUnauthorized(err) {
		e.Message = "the hub does not know the agent's credential: it has expired, or the hub has another CA now"
		e.Remedy = fmt.Sprintf(
			"run on the hub: wid hub deny --clusters %s; and then pass --force here, which removes the agent without informing the hub", name)
	}
	return e
}

// withdrawWith withdraws the cluster at the hub with the credential in the
// Secret, by the driver that made it. The driver for certificates also serves
// those that are unknown here, as long as their kubeconfig runs no program.
func withdrawWith(ctx context.Context, local client.Client, name string, secret *corev1.Secret,
	arns *install.ClusterARNs) error {
	if len(secret.Data[registration.SecretKeyKubeconfig]) == 0 {
		return errNoCredential
	}
	driver, err := registration.Driver(csr.New(csr.Options{})), error(nil)
	if string(secret.Data[ocm.SecretKeyAuthType]) == registration.AuthTypeAWS {
		driver, err = arns.Driver()
	}
	if err != nil {
		return err
	}
	withdrawing, err := agent.New(agent.Options{Cluster: name, Driver: driver, Local: local,
		Namespace: secret.Namespace, NewHubClient: cli.NewClient})
	if err != nil {
		return err
	}
	return withdrawing.Unjoin(ctx)
}

// removeAgent removes the Deployment and the bootstrap Secret first. Nothing
// then recreates the agent's own Secret and the add-ons' Secrets.
func removeAgent(ctx context.Context, cmd *cobra.Command, local client.Client, namespace, name string,
	purge bool) error {
	secrets := &unstructured.UnstructuredList{}
	secrets.SetAPIVersion("v1")
	secrets.SetKind("SecretList")
	err := local.List(ctx, secrets, client.MatchingLabels{ocm.AddOnClusterLabel: name}, client.HasLabels{addon.NameLabel})
	switch {
	case apierrors.IsForbidden(err):
		cmd.PrintErrf(
			"wid: warning: the Secrets of add-ons stay, since you may not list Secrets of all namespaces: delete those with the label %s=%s\n",
			ocm.AddOnClusterLabel, name)
	case err != nil:
		return cli.AnswerOf(err, "list the Secrets of add-ons")
	}
	var objects []*unstructured.Unstructured
	for i := range secrets.Items {
		kept, err := isOfAnotherAgent(ctx, local, namespace, &secrets.Items[i])
		if err != nil {
			return err
		}
		if !kept {
			objects = append(objects, &secrets.Items[i])
		}
	}
	installed, err := manifests.AgentObjects(namespace, purge)
	if err != nil {
		return err
	}
	return install.RemoveAll(ctx, cmd, local, append(objects, installed...))
}

// isOfAnotherAgent reports whether a Secret of an add-on lies in the namespace
// of add-ons of another agent. The cluster may have one name on several hubs.
func isOfAnotherAgent(ctx context.Context, local client.Client, namespace string, secret client.Object) (bool, error) {
	other, ok := strings.CutSuffix(secret.GetNamespace(), manifests.AddOnSuffix)
	if !ok || other == namespace {
		return false, nil
	}
	running, _, err := install.Running(ctx, local, other, ocm.AgentName)
	return running != nil, err
}

// agentSecret reads the agent's Secret, and returns an empty one if it does not
// exist. It refuses a Secret of another cluster name.
func agentSecret(ctx context.Context, local client.Client, namespace, cluster string) (*corev1.Secret, error) {
	key := client.ObjectKey{Namespace: namespace, Name: ocm.HubKubeconfigSecret}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	if err := local.Get(ctx, key, secret); err != nil {
		return secret, cli.AnswerOf(client.IgnoreNotFound(err), fmt.Sprintf("read Secret %q", key))
	}
	if name := string(secret.Data[ocm.SecretKeyClusterName]); name != "" && name != cluster {
		return secret, cli.Problem(auth.ErrMisconfigured,
			fmt.Sprintf(
				"use that name with --cluster-name, another agent with --namespace, or another cluster with --context; "+
					"wid unjoin --cluster-name %.100q --namespace %s ends that registration", name, namespace),
			"the agent in namespace %q has registered this cluster as %.100q at the hub %.300q, not as %q", namespace, name,
			serverOf(secret), cluster)
	}
	return secret, nil
}
