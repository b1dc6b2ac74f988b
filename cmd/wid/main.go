// Command wid is the library at the command line: credentials, clusters of
// hubs, bootstrap tokens and issuers. wid --help lists its commands;
// docs/wid.md shows how other programs use it as a plugin.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/workloadid/workloadid/cmd/wid/internal/bootstrapcmd"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/credentials"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctorcmd"
	"github.com/workloadid/workloadid/cmd/wid/internal/hubcmd"
	"github.com/workloadid/workloadid/cmd/wid/internal/issuercmd"
	"github.com/workloadid/workloadid/cmd/wid/internal/joincmd"
	"github.com/workloadid/workloadid/cmd/wid/internal/podcmd"
	"github.com/workloadid/workloadid/internal/buildinfo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	stderr := os.Stderr          // see relayPlugin
	root := newRoot()
	root.SetErr(stderr)
	root.SetArgs(argumentsOf(os.Args))
	cmd, err := root.ExecuteContextC(ctx)
	code := 0
	if err != nil {
		var status cli.ExitStatus
		if !errors.As(err, &status) { // its report is printed already
			_, _ = fmt.Fprintln(stderr, "wid:", err) // stderr is the last resort
		}
		code = cli.ExitCode(ctx, err)
		if credentials.TellDocker(cmd, err) && ctx.Err() == nil {
			code = cli.ExitOther // as docker's own helpers do
		}
	}
	stop()
	os.Exit(code)
}

func newRoot() *cobra.Command { return rootOf(&credentials.App{}) }

func rootOf(a *credentials.App) *cobra.Command {
	root := cli.Group("wid", "Kubernetes identities at the command line")
	add := func(title, example string, commands ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: example, Title: title}) // as cli.Help wants it
		for _, cmd := range commands {
			cmd.GroupID = example
			root.AddCommand(cmd)
		}
	}
	add("Credentials of a ServiceAccount", "wid token --service-account tenant-a/app --region eu-central-1",
		a.NewToken(), a.NewExec(), a.NewKubeconfig(), doctorcmd.NewDoctor(a))
	add("Plugins of other programs",
		"git config --global credential.https://dev.azure.com.helper '!wid git-credential --service-account tenant-a/app'",
		a.NewPlugins()...)
	add("Hubs and their clusters (Open Cluster Management)", "wid hub accept --clusters managed-0 --wait",
		hubcmd.NewHub(), joincmd.NewJoin(), joincmd.NewUnjoin())
	add("Pods and machines", "wid bootstrap create --ttl 1h",
		podcmd.NewPodIdentity(), bootstrapcmd.NewBootstrap())
	add("Clusters whose tokens clouds verify", "wid issuer check", issuercmd.NewIssuer())
	add("This program", "wid version -o json", newVersion(), newCompletion(root))
	cli.ExitCodes(root, exitCodes)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Version = buildinfo.Read().String()
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { _ = cli.Help(cmd) }) // standard output is gone
	cli.Finish(root)
	return root
}

const exitCodes = `  0    success
  1    any other error, such as standard output that cannot be written
  2    wrong flags or arguments
  10   misconfigured: correct what the message names
  11   denied by a policy, Kubernetes or the provider
  12   throttled
  13   unavailable: no usable answer, or an expired login
  130  interrupted by SIGINT or SIGTERM
wid doctor has 0 to 3 of its own, wid docker-credential 0 and 1, and wid exec
the code of its command.`

// argumentsOf inserts docker-credential if the program runs as
// docker-credential-wid.
func argumentsOf(argv []string) []string {
	name := strings.TrimSuffix(filepath.Base(argv[0]), ".exe")
	if name == "docker-credential-wid" {
		return append([]string{"docker-credential"}, argv[1:]...)
	}
	return argv[1:]
}

func newVersion() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Print the version and commit of this program",
		Example: "  wid version -o json", Args: cobra.NoArgs}
	o := cli.OutputFlag(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		v := buildinfo.Read()
		return o.Print(cmd, v, func(w io.Writer) { cli.Row(w, "wid "+v.String()) })
	}
	return cmd
}

func newCompletion(root *cobra.Command) *cobra.Command {
	scripts := map[string]func(w io.Writer) error{
		"bash": func(w io.Writer) error { return root.GenBashCompletionV2(w, true) }, "zsh": root.GenZshCompletion,
		"fish": func(w io.Writer) error {
			return root.GenFishCompletion(w, true)
		}, "powershell": root.GenPowerShellCompletionWithDesc,
	}
	return &cobra.Command{
		Use:       "completion bash|zsh|fish|powershell",
		Short:     "Print a script that completes commands, flags, contexts of kubeconfigs and files; it asks no cluster",
		Example:   "  wid completion bash >~/.wid-completion && source ~/.wid-completion",
		ValidArgs: slices.Sorted(maps.Keys(scripts)),
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		RunE:      func(cmd *cobra.Command, args []string) error { return scripts[args[0]](cmd.OutOrStdout()) },
	}
}
