package cli

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
	rareFlag   = "wid/rare"   // shown by --help-all only
	flagGroup  = "wid/group"  // heading of the flag
	flagValues = "wid/values" // what completion offers
)

func annotate(f *pflag.FlagSet, name, key string, values ...string) {
	if err := f.SetAnnotation(name, key, values); err != nil {
		panic(err) // a mistake in the name of a flag
	}
}

// Rare leaves flags to --help-all.
func Rare(f *pflag.FlagSet, names ...string) {
	for _, name := range names {
		annotate(f, name, rareFlag, "")
	}
}

// Headed gives a flag a heading of its own in --help.
func Headed(f *pflag.FlagSet, name, heading string) { annotate(f, name, flagGroup, heading) }

// Group returns a command that has only subcommands. Other arguments are wrong usage.
func Group(use, short string, commands ...*cobra.Command) *cobra.Command {
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
			return Usagef("unknown command %.100q for %q%s; see %[2]s --help", args[0], cmd.CommandPath(), hint)
		}}
	cmd.AddCommand(commands...)
	return cmd
}

// Finish gives a command and its subcommands completion, --help-all and the exit code of wrong usage.
func Finish(cmd *cobra.Command) {
	for _, child := range cmd.Commands() {
		Finish(child)
	}
	if cmd.Args != nil {
		cmd.Args = Exactly(cmd.Args)
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

// Exactly turns the error of an argument check into wrong usage.
func Exactly(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		if err == nil || errors.As(err, new(*UsageError)) {
			return err
		}
		return Usagef("%v; see %s --help", err, cmd.CommandPath())
	}
}

// Usage prints examples, subcommands and flags. Flags have the headings of their groups.
func Usage(cmd *cobra.Command) error {
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
	for _, group := range groups {
		section(group.Name(), group.FlagUsages())
	}
	if hidden > 0 {
		_, _ = fmt.Fprintf(&b, "\n%d more flags: %s --help-all\n", hidden, cmd.CommandPath())
	}
	_, err := fmt.Fprint(cmd.OutOrStderr(), b.String())
	return err
}

// flagsByGroup returns the flags by heading, those without one first. Without --help-all it counts the rare ones instead.
func flagsByGroup(cmd *cobra.Command) (groups []*pflag.FlagSet, hidden int) {
	find := func(title string) *pflag.FlagSet {
		i := slices.IndexFunc(groups, func(g *pflag.FlagSet) bool { return g.Name() == title })
		if i < 0 {
			i, groups = len(groups), append(groups, pflag.NewFlagSet(title, pflag.ContinueOnError))
			groups[i].SortFlags = false
		}
		return groups[i]
	}
	find("Flags")
	add := func(f *pflag.Flag) {
		title := "Flags"
		if f.Annotations[flagGroup] != nil {
			title = f.Annotations[flagGroup][0]
		}
		if f.Annotations[rareFlag] != nil && !cmd.Flags().Changed("help-all") {
			hidden++
			return
		}
		find(title).AddFlag(f)
	}
	cmd.LocalFlags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
	return groups, hidden
}

// Output is the flag --output of a command. Its value is one of the command's formats.
type Output struct {
	Format string
	All    []string
}

// OutputFlag adds the flag. The first format is the default.
func OutputFlag(cmd *cobra.Command, formats ...string) *Output {
	o := &Output{formats[0], formats}
	cmd.Flags().VarP(o, "output", "o", o.formats())
	return o
}

func (o *Output) formats() string {
	last := len(o.All) - 1
	return strings.Join(o.All[:last], ", ") + " or " + o.All[last]
}

// String implements pflag.Value.
func (o *Output) String() string { return o.Format }

// Type implements pflag.Value.
func (o *Output) Type() string { return "format" }

// Set implements pflag.Value.
func (o *Output) Set(format string) error {
	if !slices.Contains(o.All, format) {
		return fmt.Errorf("pass %s", o.formats())
	}
	o.Format = format
	return nil
}

// Encode returns value as JSON or YAML. For a table, it returns the columns that table writes.
func (o *Output) Encode(value any, table func(w io.Writer)) ([]byte, error) {
	if o.Format == "table" {
		var b bytes.Buffer
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		table(w)
		err := w.Flush()
		return b.Bytes(), err
	}
	content, err := json.MarshalIndent(value, "", "  ")
	if err == nil && o.Format == "yaml" {
		content, err = yaml.JSONToYAML(content)
	}
	return append(bytes.TrimSpace(content), '\n'), err
}

// Print writes what encode returns to standard output.
func (o *Output) Print(cmd *cobra.Command, value any, table func(w io.Writer)) error {
	content, err := o.Encode(value, table)
	if err == nil {
		_, err = cmd.OutOrStdout().Write(content)
	}
	return err
}

// Row writes the cells of one row of a table. The error appears when the table is flushed.
func Row(w io.Writer, cells ...string) { _, _ = fmt.Fprintln(w, strings.Join(cells, "\t")) }

// Say writes a line to standard output. A cobra command's own Println writes to standard error.
func Say(cmd *cobra.Command, format string, args ...any) error {
	_, err := fmt.Fprintf(cmd.OutOrStdout(), format+"\n", args...)
	return err
}
