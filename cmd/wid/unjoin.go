package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/kubeerror"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

func newUnjoin() *cobra.Command {
	s := &side{}
	var name string
	var purge, force bool
	var arns clusterARNs
	cmd := &cobra.Command{
		Use:   "unjoin",
		Short: "Take a cluster out of its hub, and remove its agent",
		Long: "Take a cluster out of its hub. With the agent's own credential it withdraws the cluster's acceptance, whereupon the\n" +
			"hub takes away all its access. Then it removes the agent, its two Secrets and those of add-ons from the cluster. If the\n" +
			"hub cannot be told, nothing is removed without --force, unless the agent has no credential of its own yet.",
		Example: "  wid unjoin --cluster-name managed-0 --context managed-0",
	}
	f := cmd.Flags()
	f.StringVar(&name, "cluster-name", "", "name of the cluster on the hub")
	f.BoolVar(&purge, "purge", false, "remove the agent's RBAC too, and its namespace with all that is in it")
	f.BoolVar(&force, "force", false, "remove the agent even if the hub cannot be told")
	arns.bindHub(f)
	arns.bindManaged(f)
	return s.command(cmd, "the cluster that leaves", func(ctx context.Context, cmd *cobra.Command) error {
		if name == "" {
			return usagef("name the cluster with --cluster-name")
		}
		if err := registration.CheckClusterName(name); err != nil {
			return usagef("--cluster-name: %v", err)
		}
		local, _, err := s.connect()
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

// withdraw tells the hub. That the agent has no access there is a warning.
func withdraw(ctx context.Context, cmd *cobra.Command, local client.Client, name string, arns *clusterARNs, force bool) error {
	secret, err := agentSecret(ctx, local, name)
	if err != nil {
		return err
	}
	err = tell(ctx, local, name, secret, arns)
	if err == nil {
		return say(cmd, "cluster %q withdrawn: the hub takes away its access", name)
	}
	var usage *usageError
	switch {
	case errors.Is(err, errNoCredential) || errors.Is(err, registration.ErrNotJoined) || apierrors.IsForbidden(err) || force:
		cmd.PrintErrf("wid: warning: the hub was not told; to make sure, run there: wid hub deny --clusters %s (%s)\n", name, oneLine(err.Error()))
		return nil
	case errors.As(err, &usage):
		return err
	}
	return &auth.Error{Reason: auth.ErrUnavailable, Err: err, Operation: fmt.Sprintf("withdraw cluster %q", name), Message: oneLine(kubeerror.Message(err)),
		Remedy: "mend that, or pass --force to remove the agent without telling the hub"}
}

// tell withdraws the cluster at the hub with the credential in the Secret, by the driver that made it. The driver for certificates also
// serves those that are unknown here, as long as their kubeconfig runs no program.
func tell(ctx context.Context, local client.Client, name string, secret *corev1.Secret, arns *clusterARNs) error {
	if len(secret.Data[registration.SecretKeyKubeconfig]) == 0 {
		return errNoCredential
	}
	driver, err := registration.Driver(csr.New(csr.Options{})), error(nil)
	if string(secret.Data[registration.SecretKeyAuthType]) == authTypeAWS {
		driver, err = arns.driver()
	}
	if err != nil {
		return err
	}
	agent, err := registration.NewAgent(registration.AgentOptions{Cluster: name, Driver: driver, Local: local,
		NewHubClient: func(config *rest.Config) (client.Client, error) {
			boundAnswers(config)
			return newRegistrationClient(config)
		}})
	if err != nil {
		return err
	}
	return agent.Unjoin(ctx)
}

// removeAgent removes the Deployment and the bootstrap Secret first, without which nothing recreates the agent's own Secret and those of
// add-ons. The namespace of add-ons stays: their programs may run there.
func removeAgent(ctx context.Context, cmd *cobra.Command, local client.Client, name string, purge bool) error {
	var objects []*unstructured.Unstructured
	if purge {
		all, err := parseManifests(joinManifests(registration.AgentManifest, registration.AgentAddOnManifest))
		if err != nil {
			return err
		}
		objects = slices.DeleteFunc(all, func(o *unstructured.Unstructured) bool {
			return o.GetKind() == "Namespace" && o.GetName() == registration.DefaultAddOnNamespace
		})
	}
	secrets := &unstructured.UnstructuredList{}
	secrets.SetAPIVersion("v1")
	secrets.SetKind("SecretList")
	err := local.List(ctx, secrets, client.MatchingLabels{registration.AddOnClusterLabel: name}, client.HasLabels{addon.NameLabel})
	switch {
	case apierrors.IsForbidden(err):
		cmd.PrintErrf("wid: warning: the Secrets of add-ons stay, since you may not list Secrets of all namespaces: delete those with the label %s=%s\n",
			registration.AddOnClusterLabel, name)
	case err != nil:
		return answerOf(err, "list the Secrets of add-ons")
	}
	for i := range secrets.Items {
		objects = append(objects, &secrets.Items[i])
	}
	for _, o := range []struct{ version, kind, name string }{
		{"v1", "Secret", ocm.HubKubeconfigSecret}, {"v1", "Secret", registration.DefaultBootstrapSecret}, {"apps/v1", "Deployment", agentName},
	} {
		object := &unstructured.Unstructured{}
		object.SetAPIVersion(o.version)
		object.SetKind(o.kind)
		object.SetNamespace(registration.DefaultAgentNamespace)
		object.SetName(o.name)
		objects = append(objects, object)
	}
	return removeAll(ctx, cmd, local, objects)
}
