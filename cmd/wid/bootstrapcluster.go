package main

import (
	"context"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/bootstrap/tokens"
)

// cluster is where the commands that need one find it.
type cluster struct{ kubeconfig, context string }

func (c *cluster) config() (*rest.Config, error) {
	config, _, err := c.configAndNamespace()
	return config, err
}

func (c *cluster) configAndNamespace() (*rest.Config, string, error) {
	config, namespace, err := kubeFile{c.kubeconfig, c.context}.configAndNamespace()
	if err != nil {
		return nil, "", &auth.Error{Reason: auth.ErrMisconfigured, Err: err, Remedy: "pass --kubeconfig, or set KUBECONFIG",
			Message: "cannot read the kubeconfig: " + kubeconfigMistake(err)}
	}
	return config, namespace, nil
}

func (c *cluster) tokens() (tokens.Manager, error) {
	config, err := c.config()
	if err != nil {
		return tokens.Manager{}, err
	}
	kube, err := client.New(config, client.Options{})
	return tokens.Manager{Client: kube}, err
}

// info is what the kubeconfig says of its cluster.
func (c *cluster) info() (*bootstrap.ClusterInfo, error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, err
	}
	return &bootstrap.ClusterInfo{Server: config.Host, CAData: config.CAData, TLSServerName: config.ServerName}, nil
}

// bound has a command end when somebody interrupts it, and after a minute if it has no flag for that: a named pipe in place
// of a kubeconfig knows nothing of contexts.
func bound(cmd *cobra.Command) {
	cmd.Args = exactly(cmd.Args)
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		if cmd.Flags().Lookup("timeout") == nil {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, defaultTimeout)
			defer cancel()
		}
		cmd.SetContext(ctx)
		_, err := within(ctx, func(context.Context) ([]byte, error) { return nil, run(cmd, args) })
		return err
	}
}

// argument is a token of the command line.
func argument(s string) (bootstrap.Token, error) {
	token, err := bootstrap.ParseToken(s)
	if err != nil {
		err = usagef("%v", err)
	}
	return token, err
}
