package main

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/bootstrap/controllers"
)

func newBootstrap() *cobra.Command {
	c := &cluster{}
	cmd := &cobra.Command{Use: "bootstrap", Short: "Bootstrap tokens and the discovery of clusters",
		Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }} // so that a slip is an error
	cmd.PersistentFlags().StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig of the cluster; KUBECONFIG and ~/.kube/config otherwise")
	cmd.AddCommand(newCreate(c), newList(c), newDelete(c), newGenerate(), newExtend(c), newJoinCommand(c), newDiscover(), newPublish(c))
	for _, child := range cmd.Commands() {
		bound(child)
	}
	return cmd
}

func newCreate(c *cluster) *cobra.Command {
	var config bootstrap.TokenConfig
	var ttl time.Duration
	var expires string
	cmd := &cobra.Command{
		Use:     "create [token]",
		Short:   "Create a token in the cluster and print it",
		Example: "  wid bootstrap create --ttl 1h --description \"the new node\"",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := setEnd(&config, cmd.Flags().Changed("ttl"), ttl, expires); err != nil {
				return err
			}
			if err := setUsages(&config, cmd.Flags().Changed("groups")); err != nil {
				return err
			}
			if len(args) == 1 {
				token, err := argument(args[0])
				if err != nil {
					return err
				}
				config.Token = token
			}
			m, err := c.tokens()
			if err != nil {
				return err
			}
			created, err := m.Create(cmd.Context(), config)
			if err != nil {
				return err
			}
			return say(cmd, "%s", created.Token.Reveal())
		},
	}
	flags := cmd.Flags()
	flags.DurationVar(&ttl, "ttl", 24*time.Hour, "time that the token lives, 0 for ever")
	flags.StringVar(&expires, "expires", "", "end of the token as RFC 3339, instead of --ttl")
	flags.StringSliceVar(&config.Usages, "usages", []string{bootstrap.UsageSigning, bootstrap.UsageAuthentication}, "what the token may be used for")
	flags.StringSliceVar(&config.Groups, "groups", []string{"system:bootstrappers:kubeadm:default-node-token"}, "extra groups of the token's user, if it has the usage authentication")
	flags.StringVar(&config.Description, "description", "", "what the token is for")
	return cmd
}

// say writes a line to standard output. (A cobra command's own Println writes to standard error.)
func say(cmd *cobra.Command, format string, args ...any) error {
	_, err := fmt.Fprintf(cmd.OutOrStdout(), format+"\n", args...)
	return err
}

// setEnd takes one of --ttl and --expires.
func setEnd(config *bootstrap.TokenConfig, ttlChanged bool, ttl time.Duration, expires string) error {
	switch {
	case ttlChanged && expires != "":
		return usagef("--ttl and --expires exclude each other")
	case ttl < 0:
		return usagef("--ttl is 0 or more, not %s", ttl)
	case expires != "":
		end, err := time.Parse(time.RFC3339, expires)
		if err != nil || !end.After(time.Now()) {
			return usagef("--expires is a time to come, as 2030-01-31T12:00:00Z, not %q", expires)
		}
		config.Expires = end
	case ttl > 0:
		config.Expires = time.Now().Add(ttl).UTC().Truncate(time.Second)
	}
	return nil
}

// setUsages takes the usages that Kubernetes knows, and leaves the default groups to tokens that can have some.
func setUsages(config *bootstrap.TokenConfig, groupsChanged bool) error {
	known := []string{bootstrap.UsageSigning, bootstrap.UsageAuthentication}
	for _, usage := range config.Usages {
		if !slices.Contains(known, usage) {
			return usagef("--usages is %s or both, not %.100q", strings.Join(known, ", "), usage)
		}
	}
	if len(config.Usages) == 0 {
		return usagef("--usages is %s or both, not nothing", strings.Join(known, ", "))
	}
	if !groupsChanged && !config.Allows(bootstrap.UsageAuthentication) {
		config.Groups = nil
	}
	return nil
}

func newDelete(c *cluster) *cobra.Command {
	return &cobra.Command{
		Use:   "delete <id>|<token>...",
		Short: "Delete tokens",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := c.tokens()
			if err != nil {
				return err
			}
			for _, arg := range args {
				if err := m.Delete(cmd.Context(), arg); err != nil {
					return err
				}
				id := idOf(arg)
				if err := say(cmd, "bootstrap token %q deleted", id); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// idOf keeps the secret half out of what is printed.
func idOf(idOrToken string) string {
	token, err := bootstrap.ParseToken(idOrToken)
	if err != nil {
		return idOrToken
	}
	return token.ID()
}

func newGenerate() *cobra.Command {
	return &cobra.Command{
		Use:   "generate",
		Short: "Print a new token without creating it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			token, err := bootstrap.GenerateToken()
			if err != nil {
				return err
			}
			return say(cmd, "%s", token.Reveal())
		},
	}
}

func newExtend(c *cluster) *cobra.Command {
	var ttl time.Duration
	var expires string
	cmd := &cobra.Command{
		Use:   "extend <id>|<token>",
		Short: "Set a new end for a token",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var config bootstrap.TokenConfig
			if err := setEnd(&config, cmd.Flags().Changed("ttl"), ttl, expires); err != nil {
				return err
			}
			m, err := c.tokens()
			if err != nil {
				return err
			}
			extended, err := m.Extend(cmd.Context(), args[0], config.Expires)
			if err != nil {
				return err
			}
			return say(cmd, "bootstrap token %q ends %s", extended.Token.ID(), end(extended.Expires))
		},
	}
	cmd.Flags().DurationVar(&ttl, "ttl", 24*time.Hour, "time that the token lives from now, 0 for ever")
	cmd.Flags().StringVar(&expires, "expires", "", "end of the token as RFC 3339, instead of --ttl")
	return cmd
}

func newJoinCommand(c *cluster) *cobra.Command {
	var server string
	cmd := &cobra.Command{
		Use:   "join-command <token>",
		Short: "Print the kubeadm command that joins the cluster of the kubeconfig",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			token, err := argument(args[0])
			if err != nil {
				return err
			}
			info, err := c.info()
			if err != nil {
				return err
			}
			if server != "" {
				info.Server = server
			}
			line, err := info.JoinCommand(token)
			if err != nil {
				return err
			}
			if err := say(cmd, "%s", line); err != nil {
				return err
			}
			warnOfLoopback(cmd, info.Server, "server")
			return nil
		},
	}
	cmd.Flags().StringVar(&server, "server", "", serverUsage)
	return cmd
}

const serverUsage = "https URL under which machines reach the API server, if not that of the kubeconfig"

// warnOfLoopback is for kubeconfigs of kind, or of a tunnel: nobody else reaches the cluster there.
func warnOfLoopback(cmd *cobra.Command, server, flag string) {
	u, err := url.Parse(server)
	if err != nil {
		return
	}
	if ip := net.ParseIP(u.Hostname()); u.Hostname() == "localhost" || ip.IsLoopback() {
		cmd.PrintErrf("wid: other machines cannot reach %s; name an address that they can with --%s\n", server, flag)
	}
}

func newPublish(c *cluster) *cobra.Command {
	var server string
	cmd := &cobra.Command{
		Use:   "publish",
		Short: "Publish cluster-info, readable for everyone, with the server and the certificate authority of the kubeconfig",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			info, err := c.info()
			if err != nil {
				return err
			}
			if server != "" {
				info.Server = server
			}
			m, err := c.tokens()
			if err != nil {
				return err
			}
			if err := controllers.Publish(cmd.Context(), m.Client, info); err != nil {
				return err
			}
			if err := say(cmd, "cluster-info names %s", info.Server); err != nil {
				return err
			}
			warnOfLoopback(cmd, info.Server, "server")
			return nil
		},
	}
	cmd.Flags().StringVar(&server, "server", "", serverUsage)
	return cmd
}
