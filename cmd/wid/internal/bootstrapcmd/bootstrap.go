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
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	tokenutil "k8s.io/cluster-bootstrap/token/util"
	"sigs.k8s.io/yaml"

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
	cmd := cli.Group("bootstrap", "Bootstrap tokens and the discovery of clusters",
		newCreate(s), newGenerate(), newList(s), newDelete(s), newJoinCommand(s), newDiscover(s), newPublish(s), newCheck(s))
	s.Bind(cmd.PersistentFlags(), "the cluster")
	return cmd
}

func tokensOf(s *cli.Side) (tokens.Manager, error) {
	kube, _, err := s.Connect()
	return tokens.Manager{Client: kube}, err
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
	o := cli.OutputFlag(cmd, "text", "json", "yaml")
	flags, known := cmd.Flags(), []string{bootstrap.UsageSigning, bootstrap.UsageAuthentication}
	flags.DurationVar(&ttl, "ttl", 24*time.Hour, "lifetime of the token from now, 0 for no expiry")
	flags.StringSliceVar(&config.Usages, "usages", known, "usages of the token")
	cli.Offer(cmd, "usages", known...)
	flags.StringSliceVar(&config.Groups, "groups", []string{"system:bootstrappers:kubeadm:default-node-token"},
		"extra groups of the token's user, with the usage authentication")
	flags.StringVar(&config.Description, "description", "", "description of the token")
	return s.Limited(cmd, cli.DefaultTimeout, func(ctx context.Context, cmd *cobra.Command) (err error) {
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
		if token := flags.Arg(0); flags.NArg() == 1 {
			if config.Token, err = argument(token); err != nil {
				return err
			}
		}
		m, err := tokensOf(s)
		if err != nil {
			return err
		}
		created, err := m.Create(ctx, config)
		if err != nil {
			return err
		}
		if o.Format == "text" {
			return cli.Say(cmd, "%s", created.Token.Reveal())
		}
		return o.Print(cmd,
			listed(tokens.Listed{Name: bootstrapapi.BootstrapTokenSecretPrefix + created.Token.ID(), Config: created}, true),
			nil)
	})
}

func newGenerate() *cobra.Command {
	return &cobra.Command{
		Use:   "generate",
		Short: "Print a random token and create nothing, for a cluster that does not exist yet",
		Example: "  TOKEN=$(wid bootstrap generate) && kubeadm init --token \"$TOKEN\"\n" +
			"  wid bootstrap create \"$(wid bootstrap generate)\"",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			token, err := bootstrap.GenerateToken()
			if err != nil {
				return err
			}
			return cli.Say(cmd, "%s", token.Reveal())
		},
	}
}

func argument(text string) (bootstrap.Token, error) {
	token, err := bootstrap.ParseToken(text)
	if err != nil {
		err = cli.Usagef("%v", err)
	}
	return token, err
}

func newDelete(s *cli.Side) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "delete <id>|<token>...",
		Short:   "Delete tokens",
		Example: "  wid bootstrap delete abcdef",
		Args:    cobra.MinimumNArgs(1),
	}
	return s.Limited(cmd, cli.DefaultTimeout, func(ctx context.Context, cmd *cobra.Command) error {
		m, err := tokensOf(s)
		if err != nil {
			return err
		}
		for _, arg := range cmd.Flags().Args() {
			id, _, _ := strings.Cut(arg, ".")
			if _, err := bootstrap.ParseToken(arg); err != nil && !tokenutil.IsValidBootstrapTokenID(arg) {
				return cli.Usagef("name the token by its ID, six lower-case letters and digits, or as <id>.<secret>")
			}
			if err := m.Delete(ctx, arg); err != nil {
				return err
			}
			if err := cli.Say(cmd, "bootstrap token %q deleted", id); err != nil {
				return err
			}
		}
		return nil
	})
}

const serverUsage = "https URL under which machines reach the API server, if not that of the kubeconfig"

func newJoinCommand(s *cli.Side) *cobra.Command {
	cmd := &cobra.Command{Use: "join-command <token>", Short: "Print the kubeadm command that joins the cluster",
		Example: "  wid bootstrap join-command \"$TOKEN\" --server https://10.0.0.1:6443", Args: cobra.ExactArgs(1)}
	server := cmd.Flags().String("server", "", serverUsage)
	return s.Limited(cmd, cli.DefaultTimeout, func(_ context.Context, cmd *cobra.Command) error {
		token, err := argument(cmd.Flags().Arg(0))
		if err != nil {
			return err
		}
		config, _, err := s.Config()
		if err != nil {
			return err
		}
		info, err := cli.Info(config, *server, "server")
		if err != nil {
			return err
		}
		line, err := info.JoinCommand(token)
		if err != nil {
			return err
		}
		defer cli.WarnOfLoopback(cmd, info.Server, "server")
		return cli.Say(cmd, "%s", line)
	})
}

func newPublish(s *cli.Side) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "publish",
		Short:   "Publish cluster-info, readable for everyone, with the server and the CA of the kubeconfig",
		Example: "  wid bootstrap publish --context prod",
	}
	server := cmd.Flags().String("server", "", serverUsage)
	return s.Limited(cmd, cli.DefaultTimeout, func(ctx context.Context, cmd *cobra.Command) error {
		kube, config, err := s.Connect()
		if err != nil {
			return err
		}
		info, err := cli.Info(config, *server, "server")
		if err != nil {
			return err
		}
		if err := controllers.Publish(ctx, kube, info); err != nil {
			return cli.AnswerOf(err, "publish cluster-info")
		}
		defer cli.WarnOfLoopback(cmd, info.Server, "server")
		return cli.Say(cmd, "cluster-info names %s", info.Server)
	})
}

// Listed is a token in the output of list and create. In the output of list,
// Token is set with --reveal only.
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
	cmd := &cobra.Command{Use: "list", Short: "List the tokens of the cluster, without their secrets",
		Example: "  wid bootstrap list -o json"}
	o := cli.OutputFlag(cmd, "table", "json", "yaml")
	reveal := cmd.Flags().Bool("reveal", false, "show whole tokens")
	return s.Limited(cmd, cli.DefaultTimeout, func(ctx context.Context, cmd *cobra.Command) error {
		m, err := tokensOf(s)
		if err != nil {
			return err
		}
		all, err := m.List(ctx)
		if err != nil {
			return err
		}
		rows, bad := make([]Listed, len(all)), 0
		for i, l := range all {
			rows[i] = listed(l, *reveal)
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
}

// listed returns the row of a token. Cells keep text of other users to one line
// each, without control characters.
func listed(l tokens.Listed, reveal bool) Listed {
	if l.Err != nil {
		return Listed{Name: l.Name, Error: l.Err.Error(),
			cells: []string{"<" + l.Name + ">", "", "", "", "", redact.Text(l.Err.Error())}}
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
	row.cells = []string{token, ttl, expires, strings.Join(c.Usages, ","), strings.Join(c.Groups, ","),
		redact.Text(c.Description)}
	return row
}

type discoverFlags struct {
	token, file, serverName string
	pins                    []string
	unsafe                  bool
	timeout                 time.Duration
}

func newDiscover(s *cli.Side) *cobra.Command {
	var f discoverFlags
	cmd := &cobra.Command{
		Use:   "discover [server...]",
		Short: "Find out how to reach a cluster, and write a kubeconfig without credentials",
		Example: "  wid bootstrap discover 10.0.0.1:6443 --token $TOKEN --ca-cert-hash sha256:… -f cluster.yaml\n" +
			"  curl https://example.com/cluster.yaml | wid bootstrap discover --discovery-file -",
		Args: cobra.ArbitraryArgs,
	}
	o := cli.OutputFlag(cmd, "yaml", "json")
	flags := cmd.Flags()
	flags.StringVar(&f.token, "token", "", "bootstrap token, <id>.<secret>")
	flags.StringVar(&f.file, "discovery-file", "",
		"file, https URL, or - for standard input, with the cluster's information")
	flags.StringSliceVar(&f.pins, "ca-cert-hash", nil, "pin of the cluster's CA, sha256:<hex>; may be repeated")
	flags.BoolVar(&f.unsafe, "unsafe-skip-ca-verification", false,
		"trust every server that knows the token, without a pin")
	flags.StringVar(&f.serverName, "tls-server-name", "",
		"name to check the server's certificate against, if it is not that of the address")
	output := flags.StringP("file", "f", "", "kubeconfig to write as YAML, mode 0600; standard output otherwise")
	cli.Rare(flags, "unsafe-skip-ca-verification", "tls-server-name")
	return s.Limited(cmd, 5*time.Minute, func(ctx context.Context, cmd *cobra.Command) error {
		f.timeout = s.Timeout
		if err := f.check(flags.Args(), *output); err != nil {
			return err
		}
		info, err := f.find(ctx, cmd)
		if err != nil {
			return err
		}
		if *output != "" {
			return save(cmd, info, *output)
		}
		content, err := info.Encode()
		if err == nil && o.Format == "json" {
			content, err = yaml.YAMLToJSON(content)
			content = append(content, '\n')
		}
		if err == nil {
			_, err = cmd.OutOrStdout().Write(content)
		}
		return err
	})
}

// save writes the kubeconfig. The hint passes a token, since kubectl asks for a
// user name otherwise.
func save(cmd *cobra.Command, info *bootstrap.ClusterInfo, file string) error {
	if err := info.Save(file); err != nil {
		return err
	}
	cmd.PrintErrf(
		"wid: wrote %s, which names %s and holds no credentials; try it with a token of the cluster: kubectl --kubeconfig %s --token \"$TOKEN\" get --raw /version\n",
		file, info.Server, shell.Word(file, "FILE"))
	return nil
}

func (f *discoverFlags) find(ctx context.Context, cmd *cobra.Command) (*bootstrap.ClusterInfo, error) {
	if f.file != "" {
		return bootstrap.Load(ctx, f.file, cmd.InOrStdin())
	}
	token, err := argument(f.token)
	if err != nil {
		return nil, err
	}
	pins, err := bootstrap.ParsePins(f.pins...)
	if err != nil {
		return nil, cli.Usagef("%v", err)
	}
	opts := []bootstrap.DiscoverOption{bootstrap.WithPins(pins), bootstrap.WithTimeout(f.timeout),
		bootstrap.WithServerName(f.serverName)}
	if f.unsafe {
		opts = append(opts, bootstrap.WithoutPins())
	}
	return cli.Discover(ctx, cmd, cmd.Flags().Args(), token, 0, opts...)
}

// check finds mistakes before the wait for the cluster.
func (f *discoverFlags) check(args []string, output string) error {
	switch {
	case (f.token == "") == (f.file == ""):
		return cli.Usagef("pass one of --token and --discovery-file")
	case f.file != "" && (len(args) > 0 || len(f.pins) > 0 || f.unsafe || f.serverName != ""):
		return cli.Usagef(
			"--discovery-file takes neither a server nor pins nor what goes with them: the file itself is trusted")
	case f.file == "" && len(args) == 0:
		return cli.Usagef("name the server, as host:port, or several addresses of it")
	case f.file == "" && len(f.pins) == 0 && !f.unsafe:
		return cli.Usagef("pass --ca-cert-hash, or --unsafe-skip-ca-verification to trust every server that knows the token")
	case output == "":
		return nil
	}
	folder := filepath.Dir(output)
	if stat, err := os.Stat(folder); err != nil || !stat.IsDir() {
		return cli.Usagef("--file is in a folder that exists, not in %q", folder)
	}
	return nil
}
