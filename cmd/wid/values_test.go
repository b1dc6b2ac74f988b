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
		t.Errorf("wid %q: %v, not an error that says %q and %q\n%s", args, err, culprit, reason, out)
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

func TestEmptyFlagsAreRefused(t *testing.T) {
	count := 0
	for cmd := range commands(newRoot()) {
		path := strings.Fields(cmd.CommandPath())[1:]
		texts(cmd, func(f *pflag.Flag) {
			for name, value := range map[string]string{"empty": "", "blank": " ", "empty in a list": "a,"} {
				if f.Value.Type() != "stringSlice" && name == "empty in a list" {
					continue
				}
				count++
				t.Run(cmd.CommandPath()+" --"+f.Name+", "+name, func(t *testing.T) {
					refused(t, "--"+f.Name, "give it a value, or leave it out",
						slices.Concat(path, []string{"--" + f.Name + "=" + value})...)
				})
			}
		})
	}
	if count < 400 {
		t.Errorf("tried only %d values", count)
	}
}

func TestEmptyVariablesAreRefused(t *testing.T) {
	for _, s := range parsed(t).Settings() {
		variable := "WID_" + strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_"))
		t.Run(variable, func(t *testing.T) {
			t.Setenv(variable, "")
			refused(t, variable, "give it a value, or leave it out", "token")
		})
	}
	t.Run("variables of others", func(t *testing.T) {
		for _, variable := range []string{"HTTPS_PROXY", "POD_NAMESPACE", "AWS_REGION", "KUBECONFIG"} {
			t.Setenv(variable, "")
		}
		if out, err := wid(t, "", "token"); err == nil || strings.Contains(err.Error(), "set but empty") {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("ignored with --no-environment", func(t *testing.T) {
		t.Setenv("WID_SERVICE_ACCOUNT", "")
		if out, err := wid(t, "", "token", "--no-environment"); err == nil || strings.Contains(err.Error(), "set but empty") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// A script whose variable is unset never gets wid's own identity.
func TestAnEmptyIdentityIsRefused(t *testing.T) {
	for name, args := range map[string][]string{
		"token":              {"token", "--provider=aws", "--service-account", ""},
		"git":                {"git-credential", "--service-account=", "get"},
		"docker":             {"docker-credential", "--service-account=", "get"},
		"credential-process": {"credential-process", "--service-account="},
		"kubeconfig":         {"kubeconfig", "--provider=aws", "--service-account="},
		"doctor":             {"doctor", "--service-account="},
		"context of the hub": {"doctor", "registration", "--hub-context="},
		"of a group":         {"bootstrap", "--context=", "list"},
	} {
		t.Run(name, func(t *testing.T) { refused(t, "it is set but empty", "give it a value", args...) })
	}
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

func TestPlaceholdersAreRefused(t *testing.T) {
	for cmd := range commands(newRoot()) {
		path := strings.Fields(cmd.CommandPath())[1:]
		texts(cmd, func(f *pflag.Flag) {
			if strings.HasSuffix(f.Name, "context") {
				return // the kubeconfig knows them
			}
			t.Run(cmd.CommandPath()+" --"+f.Name, func(t *testing.T) {
				refused(t, "--"+f.Name, `"AGENT_IMAGE" is a placeholder`,
					slices.Concat(path, []string{"--" + f.Name + "=AGENT_IMAGE"})...)
			})
		})
	}
	t.Run("a ServiceAccount", func(t *testing.T) {
		refused(t, "--service-account", `"NAMESPACE/NAME" is a placeholder`, "token", "--service-account=NAMESPACE/NAME")
	})
	t.Run("a context that does not exist", func(t *testing.T) {
		kubeconfig := "--kubeconfig=" + writeFile(t, "kube.yaml", kubeconfigThrough("https://127.0.0.1:1", ""))
		_, err := wid(t, "", "bootstrap", "list", kubeconfig, "--context=CLUSTER_CONTEXT")
		if err == nil || !strings.Contains(err.Error(), `"CLUSTER_CONTEXT"`) {
			t.Error(err)
		}
	})
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
		t.Errorf("%d placeholders, %v", found, err)
	}
}
