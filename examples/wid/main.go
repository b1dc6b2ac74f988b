// Command wid is the library at the command line.
//
//	wid bootstrap create|list|delete|generate|extend|join-command|discover|publish
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := newRoot().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "wid:", err)
		os.Exit(1)
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "wid",
		Short:         "Kubernetes identities at the command line",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(newBootstrap())
	return root
}
