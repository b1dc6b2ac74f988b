package cli

import (
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Offer names the values that completion offers for a flag.
func Offer(f *pflag.FlagSet, name string, values ...string) { annotate(f, name, flagValues, values...) }

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
	if o, ok := f.Value.(*Output); ok {
		return fixed(o.All...)
	}
	switch values := f.Annotations[flagValues]; {
	case values != nil:
		return fixed(values...)
	case f.Name == "context" || f.Name == "hub-context":
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
		loader, err := KubeFile{Path: valueOf(cmd, kubeconfigFlag)}.Load()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		raw, _ := loader.RawConfig()                                                              // without an answer there is nothing to offer
		return slices.DeleteFunc(slices.Sorted(maps.Keys(raw.Contexts)), func(name string) bool { // the terminal gets them as they are
			return strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
		}), cobra.ShellCompDirectiveNoFileComp
	}
}
