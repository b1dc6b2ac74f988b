package main

import (
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/buildinfo"
)

func newVersion() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Print the version and commit of this program", Example: "  wid version -o json", Args: cobra.NoArgs}
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
		"fish": func(w io.Writer) error { return root.GenFishCompletion(w, true) }, "powershell": root.GenPowerShellCompletionWithDesc,
	}
	return &cobra.Command{
		Use:       "completion bash|zsh|fish|powershell",
		Short:     "Print a script that completes commands, flags and names from the cluster",
		Example:   "  wid completion bash >~/.wid-completion && source ~/.wid-completion",
		ValidArgs: slices.Sorted(maps.Keys(scripts)),
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		RunE:      func(cmd *cobra.Command, args []string) error { return scripts[args[0]](cmd.OutOrStdout()) },
	}
}
