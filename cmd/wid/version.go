package main

import (
	"fmt"
	"io"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/registration"
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
	o := outputFlag(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		v := buildVersion()
		return o.print(cmd, v, func(w io.Writer) { row(w, v.String()) })
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

// completeFlags offers the shell the values of flags, instead of names of files.
func completeFlags(cmd *cobra.Command) {
	complete := func(f *pflag.Flag) {
		if offer := completionOf(f); offer != nil {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, offer) // a flag that is both local and persistent has it already
		}
	}
	cmd.Flags().VisitAll(complete)
	cmd.PersistentFlags().VisitAll(complete)
}

func completionOf(f *pflag.Flag) cobra.CompletionFunc {
	fixed := func(values ...string) cobra.CompletionFunc {
		return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
	}
	if o, ok := f.Value.(*output); ok {
		return fixed(o.all...)
	}
	switch f.Name {
	case "provider":
		return fixed(providerNames()...)
	case "registration-auth":
		return fixed(registration.AuthTypeCSR, registration.AuthTypeAWS)
	case addOnAuthFlag, "addon-registration-auth":
		return fixed(registration.AuthTypeCSR, registration.AuthTypeToken)
	case "usages":
		return fixed(bootstrap.UsageSigning, bootstrap.UsageAuthentication)
	case "context", "hub-context":
		return contexts(strings.TrimSuffix(f.Name, "context") + "kubeconfig")
	}
	return nil
}

// valueOf returns "" for a flag that the command lacks.
func valueOf(cmd *cobra.Command, flag string) string {
	if f := cmd.Flag(flag); f != nil {
		return f.Value.String()
	}
	return ""
}

// contexts offers those of the kubeconfig. Completion asks no cluster, since that may run a program and log in.
func contexts(kubeconfigFlag string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		loader, err := kubeFile{path: valueOf(cmd, kubeconfigFlag)}.load()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		raw, _ := loader.RawConfig()                                                              // without an answer there is nothing to offer
		return slices.DeleteFunc(slices.Sorted(maps.Keys(raw.Contexts)), func(name string) bool { // the terminal gets them as they are
			return strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
		}), cobra.ShellCompDirectiveNoFileComp
	}
}
