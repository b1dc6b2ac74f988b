package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/bootstrap/controllers"
	"github.com/workloadid/workloadid/bootstrap/tokens"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/shell"
)

// cluster is the cluster of a kubeconfig.
type cluster struct{ kubeFile }

func (c *cluster) config() (*rest.Config, error) {
	config, _, err := c.configAndNamespace()
	return config, err
}

func (c *cluster) configAndNamespace() (*rest.Config, string, error) {
	config, namespace, err := c.kubeFile.configAndNamespace()
	if err != nil {
		return nil, "", &auth.Error{Reason: auth.ErrMisconfigured, Err: err, Remedy: "pass --kubeconfig, or set KUBECONFIG",
			Message: "cannot read the kubeconfig: " + kubeconfigMistake(err)}
	}
	return config, namespace, nil
}

func newBootstrap() *cobra.Command {
	c := &cluster{}
	cmd := group("bootstrap", "Bootstrap tokens and the discovery of clusters", newCreate(c), newList(c), newDelete(c), newGenerate(),
		newExtend(c), newJoinCommand(c), newDiscover(), newPublish(c))
	bindKubeFile(cmd.PersistentFlags(), &c.kubeFile, "the cluster")
	for _, child := range cmd.Commands() {
		bound(child)
	}
	return cmd
}

// bound limits a command without --timeout to a minute, since reading a named pipe ignores contexts.
func bound(cmd *cobra.Command) {
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

// managing returns the RunE of a command that manages the tokens of the cluster.
func (c *cluster) managing(work func(cmd *cobra.Command, args []string, m tokens.Manager) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		config, err := c.config()
		if err != nil {
			return err
		}
		kube, err := client.New(config, client.Options{})
		if err != nil {
			return err
		}
		return work(cmd, args, tokens.Manager{Client: kube})
	}
}

// lifetime holds --ttl and --expires.
type lifetime struct {
	ttl     time.Duration
	expires string
}

func (l *lifetime) bind(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&l.ttl, "ttl", 24*time.Hour, "lifetime of the token from now, 0 for no expiry")
	cmd.Flags().StringVar(&l.expires, "expires", "", "expiry of the token as RFC 3339, instead of --ttl")
}

// expiry returns the zero time for a token without expiry.
func (l *lifetime) expiry(cmd *cobra.Command) (time.Time, error) {
	switch {
	case cmd.Flags().Changed("ttl") && l.expires != "":
		return time.Time{}, usagef("--ttl and --expires exclude each other")
	case l.ttl < 0:
		return time.Time{}, usagef("--ttl is 0 or more, not %s", l.ttl)
	case l.expires != "":
		expiry, err := time.Parse(time.RFC3339, l.expires)
		if err != nil || !expiry.After(time.Now()) {
			return expiry, usagef("--expires is a time in the future, as 2030-01-31T12:00:00Z, not %q", l.expires)
		}
		return expiry, nil
	case l.ttl == 0:
		return time.Time{}, nil
	}
	return time.Now().Add(l.ttl).UTC().Truncate(time.Second), nil
}

func newCreate(c *cluster) *cobra.Command {
	var config bootstrap.TokenConfig
	var l lifetime
	cmd := &cobra.Command{
		Use:     "create [token]",
		Short:   "Create a token in the cluster and print it",
		Example: "  wid bootstrap create --ttl 1h --description \"the new node\"",
		Args:    cobra.MaximumNArgs(1),
	}
	l.bind(cmd)
	flags, known := cmd.Flags(), []string{bootstrap.UsageSigning, bootstrap.UsageAuthentication}
	flags.StringSliceVar(&config.Usages, "usages", known, "usages of the token")
	flags.StringSliceVar(&config.Groups, "groups", []string{"system:bootstrappers:kubeadm:default-node-token"}, "extra groups of the token's user, with the usage authentication")
	flags.StringVar(&config.Description, "description", "", "description of the token")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if config.Expires, err = l.expiry(cmd); err != nil {
			return err
		}
		for _, usage := range config.Usages {
			if !slices.Contains(known, usage) {
				return usagef("--usages is %s or both, not %.100q", strings.Join(known, ", "), usage)
			}
		}
		if len(config.Usages) == 0 {
			return usagef("--usages must not be empty: pass %s or both", strings.Join(known, ", "))
		}
		if !flags.Changed("groups") && !config.Allows(bootstrap.UsageAuthentication) {
			config.Groups = nil
		}
		if len(args) == 1 {
			if config.Token, err = argument(args[0]); err != nil {
				return err
			}
		}
		return c.managing(func(cmd *cobra.Command, _ []string, m tokens.Manager) error {
			created, err := m.Create(cmd.Context(), config)
			if err != nil {
				return err
			}
			return say(cmd, "%s", created.Token.Reveal())
		})(cmd, args)
	}
	return cmd
}

// argument parses a token of the command line.
func argument(s string) (bootstrap.Token, error) {
	token, err := bootstrap.ParseToken(s)
	if err != nil {
		err = usagef("%v", err)
	}
	return token, err
}

// idOf returns the ID in an argument that is an ID or a token.
func idOf(idOrToken string) (string, error) {
	token, err := bootstrap.ParseToken(idOrToken)
	switch {
	case err == nil:
		return token.ID(), nil
	case bootstrap.ValidTokenID(idOrToken):
		return idOrToken, nil
	}
	return "", usagef("name the token by its ID, six lower-case letters and digits, or as <id>.<secret>")
}

func newDelete(c *cluster) *cobra.Command {
	return &cobra.Command{
		Use:   "delete <id>|<token>...",
		Short: "Delete tokens",
		Args:  cobra.MinimumNArgs(1),
		RunE: c.managing(func(cmd *cobra.Command, args []string, m tokens.Manager) error {
			for _, arg := range args {
				id, err := idOf(arg)
				if err == nil {
					err = m.Delete(cmd.Context(), arg)
				}
				if err == nil {
					err = say(cmd, "bootstrap token %q deleted", id)
				}
				if err != nil {
					return err
				}
			}
			return nil
		}),
	}
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
	var l lifetime
	cmd := &cobra.Command{Use: "extend <id>|<token>", Short: "Set a new expiry for a token", Args: cobra.ExactArgs(1)}
	l.bind(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		expires, err := l.expiry(cmd)
		if err != nil {
			return err
		}
		if _, err := idOf(args[0]); err != nil {
			return err
		}
		return c.managing(func(cmd *cobra.Command, args []string, m tokens.Manager) error {
			extended, err := m.Extend(cmd.Context(), args[0], expires)
			if err != nil {
				return err
			}
			return say(cmd, "bootstrap token %q ends %s", extended.Token.ID(), end(extended.Expires))
		})(cmd, args)
	}
	return cmd
}

// info describes the cluster of the kubeconfig. A server that is not empty replaces the address.
func (c *cluster) info(server string) (*bootstrap.ClusterInfo, error) {
	config, err := c.config()
	if err == nil {
		err = rest.LoadTLSFiles(config)
	}
	if err != nil {
		return nil, err
	}
	if server == "" {
		server = config.Host
	}
	return &bootstrap.ClusterInfo{Server: server, CAData: config.CAData, TLSServerName: config.ServerName}, nil
}

const serverUsage = "https URL under which machines reach the API server, if not that of the kubeconfig"

func newJoinCommand(c *cluster) *cobra.Command {
	var server string
	cmd := &cobra.Command{Use: "join-command <token>", Short: "Print the kubeadm command that joins the cluster", Args: cobra.ExactArgs(1)}
	cmd.Flags().StringVar(&server, "server", "", serverUsage)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		token, err := argument(args[0])
		if err != nil {
			return err
		}
		info, err := c.info(server)
		if err != nil {
			return err
		}
		line, err := info.JoinCommand(token)
		if err != nil {
			return err
		}
		defer warnOfLoopback(cmd, info.Server, "server")
		return say(cmd, "%s", line)
	}
	return cmd
}

// warnOfLoopback warns of addresses of kind or of a tunnel, which other machines cannot reach.
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
		Short: "Publish cluster-info, readable for everyone, with the server and the CA of the kubeconfig",
		Args:  cobra.NoArgs,
		RunE: c.managing(func(cmd *cobra.Command, _ []string, m tokens.Manager) error {
			info, err := c.info(server)
			if err != nil {
				return err
			}
			if err := controllers.Publish(cmd.Context(), m.Client, info); err != nil {
				return err
			}
			defer warnOfLoopback(cmd, info.Server, "server")
			return say(cmd, "cluster-info names %s", info.Server)
		}),
	}
	cmd.Flags().StringVar(&server, "server", "", serverUsage)
	return cmd
}

// listed is a token in the output of list. Token is set with --reveal only.
type listed struct {
	ID          string   `json:"id,omitempty"`
	Token       string   `json:"token,omitempty"`
	Name        string   `json:"name"`
	Expires     string   `json:"expires,omitempty"`
	Usages      []string `json:"usages,omitempty"`
	Groups      []string `json:"groups,omitempty"`
	Description string   `json:"description,omitempty"`
	Error       string   `json:"error,omitempty"`
}

func newList(c *cluster) *cobra.Command {
	var reveal bool
	cmd := &cobra.Command{Use: "list", Short: "List the tokens of the cluster, without their secrets", Args: cobra.NoArgs}
	o := outputFlag(cmd, "table", "json", "yaml")
	cmd.Flags().BoolVar(&reveal, "reveal", false, "show whole tokens")
	cmd.RunE = c.managing(func(cmd *cobra.Command, _ []string, m tokens.Manager) error {
		all, err := m.List(cmd.Context())
		if err != nil {
			return err
		}
		rows, bad := toRows(all, reveal)
		if err := o.print(cmd, map[string]any{"kind": "List", "items": rows}, func(w io.Writer) { tokenTable(w, rows) }); err != nil {
			return err
		}
		if bad > 0 {
			return fmt.Errorf("%d of %d tokens are malformed", bad, len(rows))
		}
		return nil
	})
	return cmd
}

func toRows(all []tokens.Listed, reveal bool) (rows []listed, bad int) {
	rows = []listed{}
	for _, l := range all {
		if l.Err != nil {
			rows, bad = append(rows, listed{Name: l.Name, Error: l.Err.Error()}), bad+1
			continue
		}
		token := l.Config.Token
		row := listed{ID: token.ID(), Name: l.Name, Usages: l.Config.Usages, Groups: l.Config.Groups, Description: l.Config.Description}
		if reveal {
			row.Token = token.Reveal()
		}
		if !l.Config.Expires.IsZero() {
			row.Expires = end(l.Config.Expires)
		}
		rows = append(rows, row)
	}
	return rows, bad
}

// tokenTable keeps text of other users to one line each, without control characters.
func tokenTable(w io.Writer, rows []listed) {
	row(w, "TOKEN", "TTL", "EXPIRES", "USAGES", "EXTRA GROUPS", "DESCRIPTION")
	for _, r := range rows {
		if r.Error != "" {
			row(w, "<"+r.Name+">", "", "", "", "", redact.Text(r.Error))
			continue
		}
		token, ttl, expires := r.Token, "<forever>", "<never>"
		if token == "" {
			token = r.ID + ".[redacted]"
		}
		if end, err := time.Parse(time.RFC3339, r.Expires); err == nil {
			ttl, expires = time.Until(end).Round(time.Second).String(), r.Expires
		}
		row(w, token, ttl, expires, strings.Join(r.Usages, ","), strings.Join(r.Groups, ","), redact.Text(r.Description))
	}
}

func end(expires time.Time) string {
	if expires.IsZero() {
		return "never"
	}
	return expires.UTC().Format(time.RFC3339)
}

type discoverFlags struct {
	token, file, output, serverName string
	pins                            []string
	unsafe                          bool
	timeout                         time.Duration
}

func newDiscover() *cobra.Command {
	var f discoverFlags
	cmd := &cobra.Command{
		Use:   "discover [server...]",
		Short: "Find out how to reach a cluster, and write a kubeconfig without credentials",
		Example: "  wid bootstrap discover 10.0.0.1:6443 --token $TOKEN --ca-cert-hash sha256:… -f cluster.yaml\n" +
			"  curl https://example.com/cluster.yaml | wid bootstrap discover --discovery-file -",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			info, err := f.run(cmd, args)
			if err != nil {
				return err
			}
			if f.output != "" {
				return f.save(cmd, info)
			}
			content, err := info.Encode()
			if err == nil {
				_, err = cmd.OutOrStdout().Write(content)
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.token, "token", "", "bootstrap token, <id>.<secret>")
	flags.StringVar(&f.file, "discovery-file", "", "file, https URL, or - for standard input, with the cluster's information")
	flags.StringSliceVar(&f.pins, "ca-cert-hash", nil, "pin of the cluster's CA, sha256:<hex>; may be repeated")
	flags.BoolVar(&f.unsafe, "unsafe-skip-ca-verification", false, "trust every server that knows the token, without a pin")
	flags.StringVar(&f.serverName, "tls-server-name", "", "name to check the server's certificate against, if it is not that of the address")
	flags.StringVarP(&f.output, "file", "f", "", "kubeconfig to write, mode 0600; standard output otherwise")
	flags.DurationVar(&f.timeout, "timeout", 5*time.Minute, "how long to wait for the cluster")
	rare(flags, "unsafe-skip-ca-verification", "tls-server-name")
	return cmd
}

// save writes the kubeconfig. The hint passes a token, since kubectl asks for a user name otherwise.
func (f *discoverFlags) save(cmd *cobra.Command, info *bootstrap.ClusterInfo) error {
	if err := info.Save(f.output); err != nil {
		return err
	}
	cmd.PrintErrf("wid: wrote %s, which names %s and holds no credentials; try it with a token of the cluster: kubectl --kubeconfig %s --token \"$TOKEN\" get --raw /version\n",
		f.output, info.Server, shell.Word(f.output, "FILE"))
	return nil
}

func (f *discoverFlags) run(cmd *cobra.Command, args []string) (*bootstrap.ClusterInfo, error) {
	if err := f.check(args); err != nil {
		return nil, err
	}
	if f.file != "" {
		ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
		defer cancel()
		return bootstrap.Load(ctx, f.file, cmd.InOrStdin())
	}
	token, err := argument(f.token)
	if err != nil {
		return nil, err
	}
	pins, err := bootstrap.ParsePins(f.pins...)
	if err != nil {
		return nil, usagef("%v", err)
	}
	opts := []bootstrap.DiscoverOption{bootstrap.WithPins(pins), bootstrap.WithTimeout(f.timeout), bootstrap.WithServerName(f.serverName),
		bootstrap.WithProgress(func(s string) { cmd.PrintErrln("wid: waiting:", s) })}
	if f.unsafe {
		opts = append(opts, bootstrap.WithoutPins())
	}
	return bootstrap.Discover(cmd.Context(), args, token, opts...)
}

// check finds mistakes before the wait for the cluster.
func (f *discoverFlags) check(args []string) error {
	switch {
	case (f.token == "") == (f.file == ""):
		return usagef("pass one of --token and --discovery-file")
	case f.timeout <= 0:
		return usagef("--timeout is more than 0, not %s", f.timeout)
	case f.file != "" && (len(args) > 0 || len(f.pins) > 0 || f.unsafe || f.serverName != ""):
		return usagef("--discovery-file takes neither a server nor pins nor what goes with them: the file itself is trusted")
	case f.file == "" && len(args) == 0:
		return usagef("name the server, as host:port, or several addresses of it")
	case f.file == "" && len(f.pins) == 0 && !f.unsafe:
		return usagef("pass --ca-cert-hash, or --unsafe-skip-ca-verification to trust every server that knows the token")
	case f.output == "":
		return nil
	}
	folder := filepath.Dir(f.output)
	if stat, err := os.Stat(folder); err != nil || !stat.IsDir() {
		return usagef("--file is in a folder that exists, not in %q", folder)
	}
	return nil
}
