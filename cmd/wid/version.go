package main

import (
	"fmt"
	"io"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"

	"github.com/spf13/cobra"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// version holds the records of the build.
type version struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func buildVersion() version {
	v := version{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Version = info.Main.Version
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func (v version) String() string {
	s := "wid " + v.Version
	if v.Commit != "" {
		s += fmt.Sprintf(" (commit %.12s of %s)", v.Commit, v.Time)
	}
	if v.Modified {
		s += ", modified"
	}
	return s + ", " + v.Go + ", " + v.Platform
}

func newVersion() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Print the version and commit of this program", Example: "  wid version -o json", Args: cobra.NoArgs}
	o := cli.OutputFlag(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		v := buildVersion()
		return o.Print(cmd, v, func(w io.Writer) { cli.Row(w, v.String()) })
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
