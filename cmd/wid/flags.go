package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newIdentity adds the flags to a command. Each can come from the environment too, as WID_<NAME>: some programs call their
// plugins without arguments.
func (a *app) newIdentity(cmd *cobra.Command) *identity {
	id := &identity{app: a, flags: pflag.NewFlagSet("identity", pflag.ContinueOnError), timeout: defaultTimeout}
	id.flags.SortFlags, cmd.Flags().SortFlags = false, false
	for _, s := range id.settings() {
		usage := s.usage + " (" + variableOf(s.name) + ")"
		switch p := s.target.(type) {
		case *string:
			id.flags.StringVar(p, s.name, *p, usage)
		case *[]string:
			id.flags.StringSliceVar(p, s.name, *p, usage)
		case *repeated:
			id.flags.StringArrayVar((*[]string)(p), s.name, *p, usage)
		case *bool:
			id.flags.BoolVar(p, s.name, *p, usage)
		case *time.Duration:
			id.flags.DurationVar(p, s.name, *p, usage)
		default:
			panic(fmt.Sprintf("the flag %s is a %T", s.name, s.target)) // a mistake in the table
		}
	}
	cmd.Flags().AddFlagSet(id.flags)
	cmd.Flags().BoolVar(&id.noEnvironment, "no-environment", false, "ignore WID_ variables, but for those of cache and time-out")
	id.clientSecret = sync.OnceValues(func() ([]byte, error) { return readBounded(id.clientSecretFile) })
	cmd.SetUsageFunc(id.printUsage)
	return id
}

func variableOf(flag string) string {
	return "WID_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnvironment takes from there what no flag says.
func (id *identity) fromEnvironment() error {
	for _, s := range id.settings() {
		value := os.Getenv(variableOf(s.name))
		if value == "" || id.changed(s.name) || id.noEnvironment && s.group != groupProgram {
			continue
		}
		if err := id.flags.Set(s.name, value); err != nil {
			return usagef("the environment variable %s cannot be used: %v", variableOf(s.name), err)
		}
	}
	return nil
}

// checkText refuses what is not UTF-8: in the key of the cache, two such texts could look the same.
func (id *identity) checkText(cmd *cobra.Command) (err error) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !utf8.ValidString(f.Value.String()) {
			err = usagef("--%s is not UTF-8", f.Name)
		}
	})
	for _, v := range shaping {
		if !utf8.ValidString(os.Getenv(v.name)) {
			err = usagef("the environment variable %s is not UTF-8", v.name)
		}
	}
	return err
}

// given are the names of the flags that are set.
func (id *identity) given() (names []string) {
	id.flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			names = append(names, f.Name)
		}
	})
	return names
}

// ofOther reports whether the flag is for one provider only, and not for this one.
func (s *setting) ofOther(provider string) bool {
	switch s.group {
	case groupIdentity, groupRequest, groupProgram, provider:
		return false
	}
	return true
}

// checkGiven refuses flags of the command line that the provider would ignore. The environment may be for all providers.
func (id *identity) checkGiven(given []string, provider string) error {
	for _, s := range id.settings() {
		if slices.Contains(given, s.name) && s.ofOther(provider) {
			return usagef("--%s is for the provider %s, not for %.100q; leave it out", s.name, s.group, provider)
		}
	}
	return nil
}

// flagValues are the flags that are set, on the command line or by the environment.
func (id *identity) flagValues() map[string]any {
	values := map[string]any{}
	id.flags.VisitAll(func(f *pflag.Flag) {
		if !f.Changed {
			return
		}
		values[f.Name] = f.Value.String()
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values[f.Name] = list.GetSlice()
		}
	})
	return values
}

// printUsage is that of cobra, with the flags in groups.
func (id *identity) printUsage(cmd *cobra.Command) error {
	var b strings.Builder
	section := func(title, text string) {
		if text != "" {
			_, _ = fmt.Fprintf(&b, "\n%s:\n%s", title, text) // buffers take everything
		}
	}
	_, _ = fmt.Fprintf(&b, "Usage:\n  %s\n", cmd.UseLine())
	if cmd.Example != "" {
		section("Examples", strings.TrimRight(cmd.Example, "\n")+"\n")
	}
	own := pflag.NewFlagSet("own", pflag.ContinueOnError)
	own.SortFlags = false
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if id.flags.Lookup(f.Name) == nil {
			own.AddFlag(f)
		}
	})
	section("Flags", own.FlagUsages())
	for _, group := range groupTitles {
		set := pflag.NewFlagSet(group[0], pflag.ContinueOnError)
		set.SortFlags = false
		for _, s := range id.settings() {
			if s.group == group[0] {
				set.AddFlag(id.flags.Lookup(s.name))
			}
		}
		section(group[1], set.FlagUsages())
	}
	_, err := fmt.Fprint(cmd.OutOrStderr(), b.String())
	return err
}
