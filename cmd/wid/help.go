package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
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

// output is the flag --output of a command. Its value is one of the command's formats.
type output struct {
	format string
	all    []string
}

// outputFlag adds the flag. The first format is the default.
func outputFlag(cmd *cobra.Command, formats ...string) *output {
	o := &output{formats[0], formats}
	cmd.Flags().VarP(o, "output", "o", o.formats())
	return o
}

func (o *output) formats() string {
	last := len(o.all) - 1
	return strings.Join(o.all[:last], ", ") + " or " + o.all[last]
}

func (o *output) String() string { return o.format }

func (o *output) Type() string { return "format" }

func (o *output) Set(format string) error {
	if !slices.Contains(o.all, format) {
		return fmt.Errorf("pass %s", o.formats())
	}
	o.format = format
	return nil
}

// encode returns value as JSON or YAML. For a table, it returns the columns that table writes.
func (o *output) encode(value any, table func(w io.Writer)) ([]byte, error) {
	if o.format == "table" {
		var b bytes.Buffer
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		table(w)
		err := w.Flush()
		return b.Bytes(), err
	}
	content, err := json.MarshalIndent(value, "", "  ")
	if err == nil && o.format == "yaml" {
		content, err = yaml.JSONToYAML(content)
	}
	return append(bytes.TrimSpace(content), '\n'), err
}

// print writes what encode returns to standard output.
func (o *output) print(cmd *cobra.Command, value any, table func(w io.Writer)) error {
	content, err := o.encode(value, table)
	if err == nil {
		_, err = cmd.OutOrStdout().Write(content)
	}
	return err
}

// row writes the cells of one row of a table. The error appears when the table is flushed.
func row(w io.Writer, cells ...string) { _, _ = fmt.Fprintln(w, strings.Join(cells, "\t")) }

// say writes a line to standard output. A cobra command's own Println writes to standard error.
func say(cmd *cobra.Command, format string, args ...any) error {
	_, err := fmt.Fprintf(cmd.OutOrStdout(), format+"\n", args...)
	return err
}
