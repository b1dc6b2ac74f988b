package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// refused runs wid, which has to refuse its usage for a reason that names the
// culprit.
func refused(t *testing.T, culprit, reason string, args ...string) {
	t.Helper()
	out, err := wid(t, "", args...)
	if err == nil || cli.ExitCode(t.Context(), err) != cli.ExitUsage || !strings.Contains(err.Error(), culprit) ||
		!strings.Contains(err.Error(), reason) ||
		strings.Count(err.Error(), "set but empty")+strings.Count(err.Error(), "placeholder") != 1 {
		t.Errorf("wid %q: got %v, want an error that says %q and %q\n%s", args, err, culprit, reason, out)
	}
}

// texts yields the flags of a command, its parents' included, that hold a text
// or a list.
func texts(cmd *cobra.Command, do func(f *pflag.Flag)) {
	cmd.InheritedFlags() // merges them
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if strings.HasPrefix(f.Value.Type(), "string") {
			do(f)
		}
	})
}

// A script whose variable is unset never gets wid's own identity, and no words
// of our texts are a value, in any flag of any command.
func TestEmptyFlagsAndPlaceholdersAreRefused(t *testing.T) {
	t.Parallel()
	count := 0
	for cmd := range commands(newRoot()) {
		path := strings.Fields(cmd.CommandPath())[1:]
		texts(cmd, func(f *pflag.Flag) {
			for value, reason := range map[string]string{"": "give it a value, or leave it out", " ": "set but empty",
				"a,": "set but empty", "AGENT_IMAGE": `"AGENT_IMAGE" is a placeholder`} {
				if f.Value.Type() != "stringSlice" && value == "a," ||
					strings.HasSuffix(f.Name, "context") && value == "AGENT_IMAGE" { // the kubeconfig knows them
					continue
				}
				count++
				refused(t, "--"+f.Name, reason, slices.Concat(path, []string{"--" + f.Name + "=" + value})...)
			}
		})
	}
	if count < 600 {
		t.Errorf("tried only %d values", count)
	}
	refused(t, "--service-account", `"NAMESPACE/NAME" is a placeholder`, "token", "--service-account=NAMESPACE/NAME")
	for name, args := range map[string][]string{
		"deny":         {"hub", "deny", ""},
		"trust policy": {"pod-identity", "trust-policy", "-n", "team-a", ""},
		"git":          {"git-credential", ""},
	} {
		t.Run("argument of "+name, func(t *testing.T) {
			refused(t, "argument 1: it is set but empty", "give it a value", args...)
		})
	}
}

var (
	// filled matches the value of a flag that a reader fills in.
	filled = regexp.MustCompile(`--[a-z%-]+ ([A-Z][A-Z_]+)\b`)
	// inOtherPrograms are placeholders in commands of cloud and service
	// programs alone.
	inOtherPrograms = strings.Fields("EMAIL KEY=VALUE MEMBER NAMESPACE:SERVICE_ACCOUNT PATH PROVIDER_ARN ROLE SUBJECT")
)

// Every placeholder that a text prints for a person is one that the commands
// refuse.
func TestEveryPrintedPlaceholderIsKnown(t *testing.T) {
	t.Parallel()
	found := 0
	isKnown := func(file, word string) {
		found++
		if err := cli.CheckValue(word); err == nil && !slices.Contains(inOtherPrograms, word) {
			t.Errorf("%s prints the placeholder %s, which wid accepts as a value", file, word)
		}
	}
	err := filepath.WalkDir(".", func(file string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		textOf := func(n ast.Node) string {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return ""
			}
			text, _ := strconv.Unquote(literal.Value) // the parser has accepted it
			return text
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && len(call.Args) == 2 {
				if name, ok := call.Fun.(*ast.SelectorExpr); ok && name.Sel.Name == "Word" && textOf(call.Args[1]) != "" {
					isKnown(file, textOf(call.Args[1]))
				}
			}
			text := textOf(n)
			if strings.Contains(text, "kubectl") || strings.Contains(text, "aws ") {
				return true
			}
			for _, match := range filled.FindAllStringSubmatch(text, -1) {
				isKnown(file, match[1])
			}
			return true
		})
		return nil
	})
	if err != nil || found < 40 {
		t.Errorf("got %d placeholders and %v, want 40 at least", found, err)
	}
}
