package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	"sigs.k8s.io/yaml"
)

// Annotations of flags.
const (
	rareFlag  = "wid/rare"  // shown by --help-all only
	flagGroup = "wid/group" // heading of the flag
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

// Group returns a command that has only subcommands. Other arguments are wrong
// usage.
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

// Finish gives a command and its subcommands completion, --help-all, the exit
// code of wrong usage, and CheckValue.
func Finish(cmd *cobra.Command) {
	for _, child := range cmd.Commands() {
		Finish(child)
	}
	check := cmd.Args
	if check == nil {
		check = cobra.NoArgs
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		return wrongUsage(cmd, cmp.Or(checkValues(cmd, args), check(cmd, args)))
	}
	cmd.SetFlagErrorFunc(wrongUsage)
	offerContexts(cmd)
	cmd.InitDefaultHelpFlag()
	cmd.Flags().Lookup("help").Usage = "help with the usual flags"
	cmd.Flags().BoolFunc("help-all", "help with all flags", func(s string) error { return cmd.Flags().Set("help", s) })
}

func wrongUsage(cmd *cobra.Command, err error) error {
	if err == nil || errors.As(err, new(*UsageError)) {
		return err
	}
	return Usagef("%v; see %s --help", err, cmd.CommandPath())
}

// Help prints the help of a command: usage, description, examples, subcommands,
// flags, and exit codes last. It wraps texts at the width of the terminal, or
// after 80 columns. Commands and words longer than that stay whole.
func Help(cmd *cobra.Command) error {
	h := &help{width: WidthOf(cmd)}
	use := cmd.CommandPath() + strings.TrimPrefix(cmd.UseLine(), cmd.CommandPath())
	if cmd.HasAvailableSubCommands() && cmd.Example == "" {
		use = cmd.CommandPath() + " COMMAND [flags]"
	}
	h.line("Usage: " + use)
	h.paragraphs(cmp.Or(cmd.Long, cmd.Short+"."))
	h.section("Examples", cmd.Example)
	h.commands(cmd)
	if hidden := h.flagsOf(cmd); hidden > 0 {
		h.line("", fmt.Sprintf("%d more flags: %s --help-all", hidden, cmd.CommandPath()))
	}
	if codes := cmd.Annotations[exitCodes]; codes != "" {
		h.section("Exit codes", codes)
	} else {
		h.line("", "Exit codes: see "+cmd.Root().Name()+" --help")
	}
	_, err := fmt.Fprint(cmd.OutOrStdout(), h.text.String())
	return err
}

const exitCodes = "wid/exit-codes"

// ExitCodes gives a command, but none of its subcommands, a list of exit codes
// in its help.
func ExitCodes(cmd *cobra.Command, codes string) {
	cmd.Annotations = map[string]string{exitCodes: codes}
}

// WidthOf returns the width of the terminal, or 80 columns.
func WidthOf(cmd *cobra.Command) int {
	if file, ok := cmd.OutOrStdout().(*os.File); ok {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 { //nolint:gosec // a file descriptor fits
			return width
		}
	}
	return 80
}

type help struct {
	text  strings.Builder
	width int
}

func (h *help) line(lines ...string) { h.text.WriteString(strings.Join(lines, "\n") + "\n") }

func (h *help) section(title, text string) {
	if text != "" {
		h.line("", title+":", strings.Trim(text, "\n"))
	}
}

// paragraphs fills lines anew. Those that begin with a blank stay.
func (h *help) paragraphs(text string) {
	h.line("")
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		if strings.HasPrefix(paragraph, " ") {
			h.line(paragraph)
			continue
		}
		h.wrapped("", "", paragraph)
	}
}

func (h *help) wrapped(first, rest, text string) { h.line(Wrap(first, rest, text, h.width, "")...) }

// Wrap breaks a text at blanks and ends of lines. It counts runes as columns.
// All lines but the last end with joint.
func Wrap(first, rest, text string, width int, joint string) (lines []string) {
	words := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == '\n' })
	line := first + strings.Join(words[:min(1, len(words))], "")
	for _, word := range words[min(1, len(words)):] {
		if utf8.RuneCountInString(line+" "+word+joint) > width {
			lines, line = append(lines, line+joint), rest+word
			continue
		}
		line += " " + word
	}
	return append(lines, line)
}

// flags lists a group. pflag itself stops wrapping at a word that is wider than
// its column.
func (h *help) flags(group *pflag.FlagSet) {
	if group.HasFlags() {
		h.line("", group.Name()+":")
	}
	for line := range strings.Lines(group.FlagUsages()) {
		line = strings.TrimRight(line, "\n")
		indent := len(line) - len(strings.TrimLeft(line, " "))
		name, usage, _ := strings.Cut(line[indent:], "   ")
		usage = strings.TrimLeft(usage, " ")
		column := min(len(line)-len(usage), 32)
		name = line[:indent] + name
		first := fmt.Sprintf("%-*s", column, name)
		if len(name) >= column {
			h.line(name)
			first = strings.Repeat(" ", column)
		}
		h.wrapped(first, strings.Repeat(" ", column), usage)
	}
}

// commands lists the commands of each group with an example, which is the ID of
// the group. Without groups, each command has an example.
func (h *help) commands(cmd *cobra.Command) {
	groups := cmd.Groups()
	if len(groups) == 0 && cmd.HasAvailableSubCommands() {
		groups = []*cobra.Group{{Title: "Commands"}}
	}
	for _, group := range groups {
		h.line("", group.Title+":")
		for _, child := range cmd.Commands() {
			if child.GroupID != group.ID || !child.IsAvailableCommand() {
				continue
			}
			padding := strings.Repeat(" ", child.NamePadding()+3)
			h.wrapped("  "+child.Name()+padding[len(child.Name())+2:], padding, child.Short)
			if first, _, _ := strings.Cut(strings.TrimSpace(child.Example), "\n"); group.ID == "" && first != "" {
				h.line(padding + first)
			}
		}
		if group.ID != "" {
			h.line("", "  "+group.ID)
		}
	}
}

// flagsOf lists the flags by heading, those without one first. Without
// --help-all it counts the rare ones instead.
func (h *help) flagsOf(cmd *cobra.Command) (hidden int) {
	groups := []*pflag.FlagSet{pflag.NewFlagSet("Flags", pflag.ContinueOnError)}
	add := func(f *pflag.Flag) {
		if f.Annotations[rareFlag] != nil && !cmd.Flags().Changed("help-all") {
			hidden++
			return
		}
		title := append(f.Annotations[flagGroup], "Flags")[0]
		i := slices.IndexFunc(groups, func(g *pflag.FlagSet) bool { return g.Name() == title })
		if i < 0 {
			i, groups = len(groups), append(groups, pflag.NewFlagSet(title, pflag.ContinueOnError))
		}
		groups[i].SortFlags = false
		groups[i].AddFlag(f)
	}
	cmd.LocalFlags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
	for _, group := range groups {
		h.flags(group)
	}
	return hidden
}

// Offer names the values that completion offers for a flag, instead of names of
// files.
func Offer(cmd *cobra.Command, flag string, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag,
		cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // a mistake in the name of a flag
	}
}

// kubeconfigOf returns the flag of the kubeconfig by the flag of its context.
func kubeconfigOf() map[string]string {
	return map[string]string{"context": "kubeconfig", "hub-context": "hub-kubeconfig"}
}

// offerContexts completes contexts by the flag that names their kubeconfig.
// Completion asks no cluster, since that may run a program and log in.
func offerContexts(cmd *cobra.Command) {
	for flag, kubeconfig := range kubeconfigOf() {
		if cmd.Flag(flag) == nil {
			continue
		}
		// A flag that a group hands down has it already.
		_ = cmd.RegisterFlagCompletionFunc(flag,
			func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
				loader, err := KubeFile{Path: cmd.Flag(kubeconfig).Value.String()}.Load()
				if err != nil {
					return nil, cobra.ShellCompDirectiveNoFileComp
				}
				// without an answer there is nothing to offer
				raw, _ := loader.RawConfig()
				// the terminal gets them as they are
				return slices.DeleteFunc(slices.Sorted(maps.Keys(raw.Contexts)), func(name string) bool {
					return strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
				}), cobra.ShellCompDirectiveNoFileComp
			})
	}
}

// Output is the flag --output of a command. Its value is one of the command's
// formats.
type Output struct {
	Format string
	All    []string
}

// OutputFlag adds the flag. The first format is the default.
func OutputFlag(cmd *cobra.Command, formats ...string) *Output {
	o := &Output{formats[0], formats}
	cmd.Flags().VarP(o, "output", "o", o.formats())
	Offer(cmd, "output", formats...)
	return o
}

func (o *Output) formats() string {
	last := len(o.All) - 1
	return strings.Join(o.All[:last], ", ") + " or " + o.All[last]
}

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

// Encode returns value as JSON or YAML. For a table, it returns the columns
// that table writes.
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

// Row writes the cells of one row of a table. The error appears when the table
// is flushed.
func Row(w io.Writer, cells ...string) { _, _ = fmt.Fprintln(w, strings.Join(cells, "\t")) }

// Say writes a line to standard output. A cobra command's own Println writes to
// standard error.
func Say(cmd *cobra.Command, format string, args ...any) error {
	_, err := fmt.Fprintf(cmd.OutOrStdout(), format+"\n", args...)
	return err
}
