// Command wid is the library at the command line. docs/wid.md shows how other programs use it as a plugin.
//
//	wid token                                          credentials of any provider
//	wid doctor                                         why there are none
//	wid doctor bootstrap|registration|pod-identity     why a machine, a cluster or a pod cannot join or has none
//	wid exec-credential, kubeconfig                    for kubectl and client-go
//	wid docker-credential, git-credential              for docker and git
//	wid credential-process                             for the AWS SDKs
//	wid kubelet-credential-provider                    for the kubelet
//	wid bootstrap create|list|delete|join-command|discover|publish
//	wid hub init|token|accept|deny|status|cleanup|policies
//	wid join, unjoin                                   clusters of a hub
//	wid pod-identity trust-policy                      IAM roles of pods
//	wid issuer check|publish|trust                     keys of a cluster's tokens, for clouds
//	wid version, completion
package main

import (
	"context"

	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
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
	err := root.ExecuteContext(ctx)
	code := 0
	if err != nil {
		var status cli.ExitStatus
		if !errors.As(err, &status) { // its report is printed already
			_, _ = fmt.Fprintln(stderr, "wid:", err) // stderr is the last resort
		}
		code = cli.ExitCode(ctx, err)
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
		a.NewToken(), a.NewKubeconfig(), doctorcmd.NewDoctor(a))
	add("Plugins of other programs", "git config --global credential.https://dev.azure.com.helper '!wid git-credential --service-account tenant-a/app'",
		a.NewExecCredential(), a.NewDockerCredential(), a.NewGitCredential(), a.NewCredentialProcess(), a.NewKubeletProvider())
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
	root.SetFlagErrorFunc(wrongFlag)
	cli.Finish(root)
	return root
}

func wrongFlag(cmd *cobra.Command, err error) error {
	return cli.Usagef("%v; see %s --help", err, cmd.CommandPath())
}

const exitCodes = `  0    success
  1    any other error, such as standard output that cannot be written
  2    wrong flags or arguments
  10   misconfigured: correct what the message names
  11   denied by a policy, Kubernetes or the provider
  12   throttled
  13   unavailable: no usable answer, or an expired login
  130  interrupted by SIGINT or SIGTERM
wid doctor has 0 to 3 of its own, wid docker-credential 0 and 1.`

// argumentsOf inserts docker-credential if the program runs as docker-credential-wid.
func argumentsOf(argv []string) []string {
	name := strings.TrimSuffix(filepath.Base(argv[0]), ".exe")
	if name == "docker-credential-wid" {
		return append([]string{"docker-credential"}, argv[1:]...)
	}
	return argv[1:]
}
