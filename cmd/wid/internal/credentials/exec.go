package credentials

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// NewExec returns wid exec.
func (a *App) NewExec() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exec [flags] -- command [argument]...",
		Short: "Run a command with the credentials of a ServiceAccount in its environment",
		Long: "Run a command as a ServiceAccount. It loses the person's own credentials of that provider, and nothing else.\n" +
			"wid ends with the command, and with its exit code.\n\n" +
			"AWS: the SDKs get and renew keys at an endpoint on loopback. Azure and Google Cloud: the SDKs exchange\n" +
			"the ServiceAccount's token, which wid renews in a file. Other providers: WID_TOKEN holds a token, which expires.",
		Example: "  wid exec --service-account tenant-a/app --region eu-central-1 -- aws s3 ls\n" +
			"  wid exec --service-account tenant-a/app --provider gcp -- gcloud storage ls\n" +
			"  wid exec --service-account tenant-a/app --provider generic --audience vault -- ./report.sh",
		Args: cobra.MinimumNArgs(1),
	}
	static := cmd.Flags().Bool("static", false,
		"AWS: set AWS_ACCESS_KEY_ID and so on, which expire, for programs without support for the endpoint")
	id := a.NewIdentity(cmd)
	cli.ForeignArgs(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		a.Stderr = cmd.ErrOrStderr()
		child := exec.Command(args[0], args[1:]...) //nolint:gosec,noctx // the person's, who also ends it
		child.Stdin, child.Stdout, child.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
		e := &execution{id: id, static: *static, parent: os.Environ(), set: map[string]string{}}
		return id.InTermsOfFlags(e.run(cmd.Context(), child))
	}
	return cmd
}

// execution is one run of wid exec.
type execution struct {
	id     *Identity
	static bool
	// dir has the files of the child. It is gone after the child.
	dir    string
	parent []string
	// lost and set are the changes of the child's environment.
	lost []string
	set  map[string]string
	// beside runs for as long as the child.
	beside []func(ctx context.Context)
}

// minter gets a credential, from memory as long as it is fresh.
type minter func(ctx context.Context) (*credential, error)

func (e *execution) run(ctx context.Context, child *exec.Cmd) (err error) {
	if err := e.check(child); err != nil {
		return err
	}
	defer e.id.Clients.End()
	if e.dir, err = os.MkdirTemp("", "wid-exec-"); err != nil { // mode 0700
		return err
	}
	defer os.RemoveAll(e.dir) //nolint:errcheck // the tokens in it expire
	starting, cancel := context.WithTimeout(ctx, e.id.Timeout)
	defer cancel()
	_, err = cli.Within(starting, func(ctx context.Context) ([]byte, error) { return nil, e.prepare(ctx) })
	if err != nil {
		return err
	}
	child.Env = e.environment()
	// An interrupt is the child's to handle, perhaps with credentials.
	besides, end := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	defer running.Wait()
	defer end()
	for _, work := range e.beside {
		running.Go(func() { work(besides) })
	}
	return runChild(ctx, child)
}

// check refuses mistakes before anything is requested.
func (e *execution) check(child *exec.Cmd) error {
	if err := e.id.Complete(); err != nil {
		return err
	}
	switch {
	case child.Err != nil:
		return cli.Usagef("the command cannot run: %v", child.Err)
	case e.id.isOwn(): // the child has that already
		return cli.Usagef("pass --service-account namespace/name, or --token-file")
	case e.id.TokenFile != "":
		_, err := lasting("--token-file", e.id.TokenFile) // wid reads it again
		return err
	}
	return nil
}

// prepare makes one exchange, so that the child starts only if the provider
// trusts the ServiceAccount, and sets up the child's environment.
func (e *execution) prepare(ctx context.Context) error {
	s, p, err := e.id.resolveNamed(ctx)
	if err != nil {
		return err
	}
	if err := e.checkEffect(p.GetName()); err != nil {
		return err
	}
	s.opts = append(slices.Clip(s.opts), s.live)
	mint := newMinter(p, s.opts)
	first, err := mint(ctx)
	if err != nil {
		return err
	}
	switch p.GetName() {
	case aws.ProviderName:
		return e.forAWS(first, mint)
	case azure.ProviderName:
		return e.forAzure(ctx, s)
	case gcp.ProviderName:
		return e.forGoogle(ctx, s)
	}
	e.add(first.values(p.GetName()))
	return nil
}

// checkEffect refuses flags without effect on the child.
func (e *execution) checkEffect(provider string) error {
	if e.static && provider != aws.ProviderName {
		return cli.Usagef("--static is for the provider aws, not for %.100q; leave it out", provider)
	}
	if provider != azure.ProviderName && provider != gcp.ProviderName {
		return nil
	}
	for _, flag := range []string{"scope", "sts-endpoint", "proxy-url", "delegate", "id-token-audience"} {
		if e.id.given[flag] {
			return cli.Usagef("--%s has no effect on the command, whose SDK makes the exchange; leave it out", flag)
		}
	}
	return nil
}

func newMinter(p auth.Provider, opts []auth.Option) minter {
	source := auth.NewAccessTokenSource(p, opts...)
	return func(ctx context.Context) (*credential, error) {
		t, err := source.Token(ctx)
		if err != nil {
			return nil, err
		}
		return fromAccessToken(p, t)
	}
}

func (e *execution) add(values []value) {
	for _, v := range values {
		e.set[v.name] = v.text
	}
}

func (e *execution) environment() []string {
	own := slices.DeleteFunc(slices.Clone(e.parent), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.ContainsFunc(e.lost, func(lost string) bool { return strings.EqualFold(lost, name) }) // as on Windows
	})
	for _, name := range slices.Sorted(maps.Keys(e.set)) {
		own = append(own, name+"="+e.set[name])
	}
	return own
}

func (e *execution) file(name string, content []byte) (path string, err error) {
	path = filepath.Join(e.dir, name)
	return path, cli.ReplaceFile(path, content, 0o600)
}
