// Package bootstrapcmd is wid bootstrap.
package bootstrapcmd

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	tokenutil "k8s.io/cluster-bootstrap/token/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/bootstrap/controllers"
	"github.com/workloadid/workloadid/bootstrap/tokens"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/shell"
)

// NewBootstrap returns wid bootstrap.
func NewBootstrap() *cobra.Command {
	s := &cli.Side{}
	cmd := cli.Group("bootstrap", "Bootstrap tokens and the discovery of clusters", newCreate(s), newList(s), newDelete(s),
		newJoinCommand(s), newDiscover(), newPublish(s))
	s.Bind(cmd.PersistentFlags(), "the cluster")
	for _, child := range cmd.Commands() {
		bound(s, child)
	}
	return cmd
}

// bound ends a command after --timeout, also if it reads a named pipe, which ignores contexts.
func bound(s *cli.Side, cmd *cobra.Command) {
	if cmd.Flags().Lookup("timeout") == nil {
		cmd.Flags().Duration("timeout", cli.DefaultTimeout, "time for everything together")
	}
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		timeout, err := cmd.Flags().GetDuration("timeout")
		if err != nil || timeout <= 0 {
			return cli.Usagef("--timeout is more than 0, not %s", timeout)
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
		defer cancel()
		s.Notices = cmd.ErrOrStderr()
		cmd.SetContext(ctx)
		_, err = cli.Within(ctx, func(context.Context) ([]byte, error) { return nil, run(cmd, args) })
		return err
	}
}

// managing returns the RunE of a command that manages the tokens of the cluster.
func managing(s *cli.Side, work func(cmd *cobra.Command, args []string, m tokens.Manager) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		config, _, err := s.Config()
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

func newCreate(s *cli.Side) *cobra.Command {
	var config bootstrap.TokenConfig
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:     "create [token]",
		Short:   "Create a token in the cluster and print it",
		Example: "  wid bootstrap create --ttl 1h --description \"the new node\"",
		Args:    cobra.MaximumNArgs(1),
	}
	flags, known := cmd.Flags(), []string{bootstrap.UsageSigning, bootstrap.UsageAuthentication}
	flags.DurationVar(&ttl, "ttl", 24*time.Hour, "lifetime of the token from now, 0 for no expiry")
	flags.StringSliceVar(&config.Usages, "usages", known, "usages of the token")
	cli.Offer(flags, "usages", known...)
	flags.StringSliceVar(&config.Groups, "groups", []string{"system:bootstrappers:kubeadm:default-node-token"}, "extra groups of the token's user, with the usage authentication")
	flags.StringVar(&config.Description, "description", "", "description of the token")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if ttl < 0 {
			return cli.Usagef("--ttl is 0 or more, not %s", ttl)
		}
		if ttl > 0 {
			config.Expires = time.Now().Add(ttl).UTC().Truncate(time.Second)
		}
		for _, usage := range config.Usages {
			if !slices.Contains(known, usage) {
				return cli.Usagef("--usages is %s or both, not %.100q", strings.Join(known, ", "), usage)
			}
		}
		if len(config.Usages) == 0 {
			return cli.Usagef("--usages must not be empty: pass %s or both", strings.Join(known, ", "))
		}
		if !flags.Changed("groups") && !config.Allows(bootstrap.UsageAuthentication) {
			config.Groups = nil
		}
		if len(args) == 1 {
			if config.Token, err = argument(args[0]); err != nil {
				return err
			}
		}
		return managing(s, func(cmd *cobra.Command, _ []string, m tokens.Manager) error {
			created, err := m.Create(cmd.Context(), config)
			if err != nil {
				return err
			}
			return cli.Say(cmd, "%s", created.Token.Reveal())
		})(cmd, args)
	}
	return cmd
}

// argument parses a token of the command line.
func argument(text string) (bootstrap.Token, error) {
	token, err := bootstrap.ParseToken(text)
	if err != nil {
		err = cli.Usagef("%v", err)
	}
	return token, err
}

func newDelete(s *cli.Side) *cobra.Command {
	return &cobra.Command{
		Use:     "delete <id>|<token>...",
		Short:   "Delete tokens",
		Example: "  wid bootstrap delete abcdef",
		Args:    cobra.MinimumNArgs(1),
		RunE: managing(s, func(cmd *cobra.Command, args []string, m tokens.Manager) error {
			for _, arg := range args {
				id, _, _ := strings.Cut(arg, ".")
				if _, err := bootstrap.ParseToken(arg); err != nil && !tokenutil.IsValidBootstrapTokenID(arg) {
					return cli.Usagef("name the token by its ID, six lower-case letters and digits, or as <id>.<secret>")
				}
				if err := m.Delete(cmd.Context(), arg); err != nil {
					return err
				}
				if err := cli.Say(cmd, "bootstrap token %q deleted", id); err != nil {
					return err
				}
			}
			return nil
		}),
	}
}

// infoOf describes the cluster of the kubeconfig. A server that is not empty replaces the address.
func infoOf(s *cli.Side, server string) (*bootstrap.ClusterInfo, error) {
	config, _, err := s.Config()
	if err != nil {
		return nil, err
	}
	return cli.Info(config, server, "server")
}

const serverUsage = "https URL under which machines reach the API server, if not that of the kubeconfig"

func newJoinCommand(s *cli.Side) *cobra.Command {
	var server string
	cmd := &cobra.Command{Use: "join-command <token>", Short: "Print the kubeadm command that joins the cluster",
		Example: "  wid bootstrap join-command \"$TOKEN\" --server https://10.0.0.1:6443", Args: cobra.ExactArgs(1)}
	cmd.Flags().StringVar(&server, "server", "", serverUsage)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		token, err := argument(args[0])
		if err != nil {
			return err
		}
		info, err := infoOf(s, server)
		if err != nil {
			return err
		}
		line, err := info.JoinCommand(token)
		if err != nil {
			return err
		}
		defer cli.WarnOfLoopback(cmd, info.Server, "server")
		return cli.Say(cmd, "%s", line)
	}
	return cmd
}

func newPublish(s *cli.Side) *cobra.Command {
	var server string
	cmd := &cobra.Command{
		Use:     "publish",
		Short:   "Publish cluster-info, readable for everyone, with the server and the CA of the kubeconfig",
		Example: "  wid bootstrap publish --context prod",
		Args:    cobra.NoArgs,
		RunE: managing(s, func(cmd *cobra.Command, _ []string, m tokens.Manager) error {
			info, err := infoOf(s, server)
			if err != nil {
				return err
			}
			if err := controllers.Publish(cmd.Context(), m.Client, info); err != nil {
				return cli.AnswerOf(err, "publish cluster-info")
			}
			defer cli.WarnOfLoopback(cmd, info.Server, "server")
			return cli.Say(cmd, "cluster-info names %s", info.Server)
		}),
	}
	cmd.Flags().StringVar(&server, "server", "", serverUsage)
	return cmd
}

// Listed is a token in the output of list. Token is set with --reveal only.
type Listed struct {
	ID          string   `json:"id,omitempty"`
	Token       string   `json:"token,omitempty"`
	Name        string   `json:"name"`
	Expires     string   `json:"expires,omitempty"`
	Usages      []string `json:"usages,omitempty"`
	Groups      []string `json:"groups,omitempty"`
	Description string   `json:"description,omitempty"`
	Error       string   `json:"error,omitempty"`

	cells []string // of the table
}

func newList(s *cli.Side) *cobra.Command {
	var reveal bool
	cmd := &cobra.Command{Use: "list", Short: "List the tokens of the cluster, without their secrets",
		Example: "  wid bootstrap list -o json", Args: cobra.NoArgs}
	o := cli.OutputFlag(cmd, "table", "json", "yaml")
	cmd.Flags().BoolVar(&reveal, "reveal", false, "show whole tokens")
	cmd.RunE = managing(s, func(cmd *cobra.Command, _ []string, m tokens.Manager) error {
		all, err := m.List(cmd.Context())
		if err != nil {
			return err
		}
		rows, bad := make([]Listed, len(all)), 0
		for i, l := range all {
			rows[i] = listed(l, reveal)
			if l.Err != nil {
				bad++
			}
		}
		err = o.Print(cmd, map[string]any{"kind": "List", "items": rows}, func(w io.Writer) {
			cli.Row(w, "TOKEN", "TTL", "EXPIRES", "USAGES", "EXTRA GROUPS", "DESCRIPTION")
			for _, r := range rows {
				cli.Row(w, r.cells...)
			}
		})
		if err == nil && bad > 0 {
			err = fmt.Errorf("%d of %d tokens are malformed", bad, len(rows))
		}
		return err
	})
	return cmd
}

// listed returns the row of a token. Cells keep text of other users to one line each, without control characters.
func listed(l tokens.Listed, reveal bool) Listed {
	if l.Err != nil {
		return Listed{Name: l.Name, Error: l.Err.Error(), cells: []string{"<" + l.Name + ">", "", "", "", "", redact.Text(l.Err.Error())}}
	}
	c := l.Config
	token, ttl, expires := c.Token.String(), "<forever>", "<never>"
	row := Listed{ID: c.Token.ID(), Name: l.Name, Usages: c.Usages, Groups: c.Groups, Description: c.Description}
	if reveal {
		row.Token = c.Token.Reveal()
		token = row.Token
	}
	if !c.Expires.IsZero() {
		row.Expires = cli.End(c.Expires)
		ttl, expires = time.Until(c.Expires).Round(time.Second).String(), row.Expires
	}
	row.cells = []string{token, ttl, expires, strings.Join(c.Usages, ","), strings.Join(c.Groups, ","), redact.Text(c.Description)}
	return row
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
	cli.Rare(flags, "unsafe-skip-ca-verification", "tls-server-name")
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
		return bootstrap.Load(cmd.Context(), f.file, cmd.InOrStdin())
	}
	token, err := argument(f.token)
	if err != nil {
		return nil, err
	}
	pins, err := bootstrap.ParsePins(f.pins...)
	if err != nil {
		return nil, cli.Usagef("%v", err)
	}
	opts := []bootstrap.DiscoverOption{bootstrap.WithPins(pins), bootstrap.WithTimeout(f.timeout), bootstrap.WithServerName(f.serverName)}
	if f.unsafe {
		opts = append(opts, bootstrap.WithoutPins())
	}
	return cli.Discover(cmd.Context(), cmd, args, token, opts...)
}

// check finds mistakes before the wait for the cluster.
func (f *discoverFlags) check(args []string) error {
	switch {
	case (f.token == "") == (f.file == ""):
		return cli.Usagef("pass one of --token and --discovery-file")
	case f.file != "" && (len(args) > 0 || len(f.pins) > 0 || f.unsafe || f.serverName != ""):
		return cli.Usagef("--discovery-file takes neither a server nor pins nor what goes with them: the file itself is trusted")
	case f.file == "" && len(args) == 0:
		return cli.Usagef("name the server, as host:port, or several addresses of it")
	case f.file == "" && len(f.pins) == 0 && !f.unsafe:
		return cli.Usagef("pass --ca-cert-hash, or --unsafe-skip-ca-verification to trust every server that knows the token")
	case f.output == "":
		return nil
	}
	folder := filepath.Dir(f.output)
	if stat, err := os.Stat(folder); err != nil || !stat.IsDir() {
		return cli.Usagef("--file is in a folder that exists, not in %q", folder)
	}
	return nil
}
