// Command wid is the library at the command line. docs/wid.md shows how to set it up as a plugin of other programs.
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
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // so that a second signal ends the program at once
	stderr := os.Stderr          // see relayPlugin
	root := newRoot()
	root.SetErr(stderr)
	root.SetArgs(argumentsOf(os.Args))
	err := root.ExecuteContext(ctx)
	code := 0
	if err != nil {
		var status exitStatus
		if !errors.As(err, &status) { // it has said all there is to say
			_, _ = fmt.Fprintln(stderr, "wid:", err) // there is nobody else to tell
		}
		code = exitCode(ctx, err)
	}
	stop()
	os.Exit(code)
}

func newRoot() *cobra.Command { return (&app{}).newRoot() }

func (a *app) newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "wid",
		Short:         "Kubernetes identities at the command line",
		Long:          "Kubernetes identities at the command line.\n\n" + exitCodes,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(newBootstrap(), newHub(), newJoin(), newUnjoin(), newPodIdentity())
	a.addCredentialCommands(root)
	return root
}
