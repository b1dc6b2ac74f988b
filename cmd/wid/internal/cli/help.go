package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
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
	cmd.InitDefaultHelpFlag()
	cmd.Flags().Lookup("help").Usage = "help with the usual flags"
	cmd.Flags().VarPF(helpAll{cmd.Flags()}, "help-all", "", "help with all flags").NoOptDefVal = "true"
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

// Help prints the help of a command: usage, description, examples, subcommands, flags, and exit codes last. It wraps texts at the width of the
// terminal, or after 80 columns. Commands and words longer than that stay whole.
func Help(cmd *cobra.Command) error {
	h := &help{width: widthOf(cmd)}
	use := cmd.CommandPath() + strings.TrimPrefix(cmd.UseLine(), cmd.CommandPath())
	if cmd.HasAvailableSubCommands() && cmd.Example == "" {
		use = cmd.CommandPath() + " COMMAND [flags]"
	}
	h.line("Usage: " + use)
	h.paragraphs(cmp.Or(cmd.Long, cmd.Short+"."))
	h.section("Examples", cmd.Example)
	h.commands(cmd)
	groups, hidden := flagsByGroup(cmd)
	for _, group := range groups {
		h.section(group.Name(), group.FlagUsagesWrapped(h.width))
	}
	if hidden > 0 {
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

// exitCodes is the annotation of a command that has exit codes of its own.
const exitCodes = "wid/exit-codes"

// ExitCodes gives a command, but none of its subcommands, a list of exit codes in its help.
func ExitCodes(cmd *cobra.Command, codes string) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[exitCodes] = codes
}

func widthOf(cmd *cobra.Command) int {
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

func (h *help) wrapped(first, rest, text string) {
	line := first
	for word := range strings.FieldsSeq(text) {
		switch {
		case strings.TrimSpace(line) == "" || line == first:
			line += word
		case utf8.RuneCountInString(line+" "+word) > h.width:
			h.line(line)
			line = rest + word
		default:
			line += " " + word
		}
	}
	h.line(line)
}

// commands lists those of each group with an example, which is the ID of the group. Without groups, each command has one.
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
