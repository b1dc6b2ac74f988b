package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Annotations of flags.
const (
	rareFlag  = "wid/rare"  // shown by --help-all only
	flagGroup = "wid/group" // heading of the flag
)

func annotate(f *pflag.FlagSet, key, value string, names ...string) {
	for _, name := range names {
		if err := f.SetAnnotation(name, key, []string{value}); err != nil {
			panic(err) // a mistake in the name of a flag
		}
	}
}

// rare leaves flags to --help-all.
func rare(f *pflag.FlagSet, names ...string) { annotate(f, rareFlag, "", names...) }

// group returns a command that has only subcommands. Other arguments are wrong usage.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, SuggestionsMinimumDistance: 2,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			hint := ""
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				hint = "; did you mean " + strings.Join(near, " or ") + "?"
			}
			return usagef("unknown command %.100q for %q%s; see %[2]s --help", args[0], cmd.CommandPath(), hint)
		}}
	cmd.AddCommand(commands...)
	return cmd
}

// finish gives a command and its subcommands completion, --help-all and the exit code of wrong usage.
func finish(cmd *cobra.Command) {
	for _, child := range cmd.Commands() {
		finish(child)
	}
	if cmd.Args != nil {
		cmd.Args = exactly(cmd.Args)
	}
	completeFlags(cmd)
	hasRare := false
	cmd.Flags().VisitAll(func(f *pflag.Flag) { hasRare = hasRare || f.Annotations[rareFlag] != nil })
	if hasRare {
		cmd.InitDefaultHelpFlag()
		cmd.Flags().VarPF(helpAll{cmd.Flags()}, "help-all", "", "help with all flags").NoOptDefVal = "true"
	}
}

// helpAll is the value of --help-all, which implies --help.
type helpAll struct{ flags *pflag.FlagSet }

func (h helpAll) Set(s string) error { return h.flags.Set("help", s) }
func (helpAll) String() string       { return "" }
func (helpAll) Type() string         { return "bool" }

// exactly turns the error of an argument check into wrong usage.
func exactly(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		if err == nil || errors.As(err, new(*usageError)) {
			return err
		}
		return usagef("%v; see %s --help", err, cmd.CommandPath())
	}
}

// usage prints examples, subcommands and flags. Flags have the headings of their groups.
func usage(cmd *cobra.Command) error {
	var b strings.Builder
	section := func(title, text string) {
		if text != "" {
			_, _ = fmt.Fprintf(&b, "\n%s:\n%s", title, text) // a strings.Builder never fails
		}
	}
	_, _ = fmt.Fprintf(&b, "Usage:\n  %s\n", cmd.UseLine())
	if cmd.Example != "" {
		section("Examples", strings.TrimRight(cmd.Example, "\n")+"\n")
	}
	commands := ""
	for _, child := range cmd.Commands() {
		if child.IsAvailableCommand() {
			commands += fmt.Sprintf("  %-*s %s\n", child.NamePadding(), child.Name(), child.Short)
		}
	}
	section("Commands", commands)
	groups, hidden := flagsByGroup(cmd)
	for _, title := range append([]string{"Flags"}, groupTitles...) {
		if groups[title] != nil {
			section(title, groups[title].FlagUsages())
		}
	}
	if hidden > 0 {
		_, _ = fmt.Fprintf(&b, "\n%d more flags: %s --help-all\n", hidden, cmd.CommandPath())
	}
	_, err := fmt.Fprint(cmd.OutOrStderr(), b.String())
	return err
}

// flagsByGroup returns the flags by heading. Without --help-all it counts the rare ones instead.
func flagsByGroup(cmd *cobra.Command) (groups map[string]*pflag.FlagSet, hidden int) {
	groups = map[string]*pflag.FlagSet{}
	add := func(f *pflag.Flag) {
		title := "Flags"
		if f.Annotations[flagGroup] != nil {
			title = f.Annotations[flagGroup][0]
		}
		switch {
		case f.Annotations[rareFlag] != nil && !cmd.Flags().Changed("help-all"):
			hidden++
			return
		case groups[title] == nil:
			groups[title] = pflag.NewFlagSet(title, pflag.ContinueOnError)
			groups[title].SortFlags = false
		}
		groups[title].AddFlag(f)
	}
	cmd.LocalFlags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
	return groups, hidden
}
