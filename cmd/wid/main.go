// Command wid is the library at the command line. docs/wid.md shows how other programs use it as a plugin.
//
//	wid token                                          credentials of any provider
//	wid doctor                                         why there are none
//	wid doctor bootstrap, doctor enrolment             why a machine or a cluster cannot join
//	wid exec-credential, kubeconfig                    for kubectl and client-go
//	wid docker-credential, git-credential              for docker and git
//	wid credential-process                             for the AWS SDKs
//	wid kubelet-credential-provider                    for the kubelet
//	wid bootstrap create|list|delete|generate|extend|join-command|discover|publish
//	wid hub init|accept|deny|status|cleanup|policies   a hub
//	wid join, unjoin                                   clusters of a hub
//	wid pod-identity trust-policy                      IAM roles of pods
//	wid version, completion, man
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
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
		var status exitStatus
		if !errors.As(err, &status) { // its report is printed already
			_, _ = fmt.Fprintln(stderr, "wid:", err) // stderr is the last resort
		}
		code = exitCode(ctx, err)
	}
	stop()
	os.Exit(code)
}

func newRoot() *cobra.Command { return (&app{}).newRoot() }

func (a *app) newRoot() *cobra.Command {
	root := group("wid", "Kubernetes identities at the command line", newBootstrap(), newHub(), newJoin(), newUnjoin(), newPodIdentity(),
		a.newToken(), a.newDoctor(), a.newExecCredential(), a.newKubeconfig(), a.newDockerCredential(), a.newGitCredential(),
		a.newCredentialProcess(), a.newKubeletProvider(), newVersion())
	root.AddCommand(newMan(root), newCompletion(root))
	root.Long = root.Short + ".\n\n" + exitCodes
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Version = strings.TrimPrefix(buildVersion().String(), "wid ")
	root.SetUsageFunc(usage)
	root.SetFlagErrorFunc(wrongFlag)
	finish(root)
	return root
}

func wrongFlag(cmd *cobra.Command, err error) error {
	return usagef("%v; see %s --help", err, cmd.CommandPath())
}
