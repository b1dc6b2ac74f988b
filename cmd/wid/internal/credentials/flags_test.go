package credentials

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// parsed is an identity as a command has it with these arguments.
func parsed(t *testing.T, args ...string) *Identity {
	t.Helper()
	cmd := &cobra.Command{Use: "wid"}
	id := (&App{Stderr: &bytes.Buffer{}}).NewIdentity(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	return id
}

// sample is a value for a flag, hard to pass on where that is possible.
func sample(s Setting) []string {
	switch s.target.(type) {
	case *bool:
		return []string{"true"}
	case *time.Duration:
		return []string{"17m0s"}
	case *[]string:
		return []string{`"a,b","say ""hi"" "`, `c`}
	case *repeated:
		return []string{`k=a,"b"`, `l=c`}
	}
	if s.Name == "bound-object" {
		return []string{"Pod/app/0b7c4a4e"}
	}
	return []string{`some "value", and more`}
}

func flagsFor(s Setting) (args []string) {
	for _, value := range sample(s) {
		args = append(args, "--"+s.Name+"="+value)
	}
	return args
}

// Every flag that can change what a credential is keeps credentials apart in the cache; the others do not.
func TestEveryFlagIsInTheKey(t *testing.T) {
	key := func(args ...string) string {
		id := parsed(t, args...)
		k, err := id.key(&Source{key: &sourceKey{}}, request{})
		if err != nil {
			t.Fatal(err)
		}
		return k.String()
	}
	plain := []string{"service-account", "kubeconfig", "context", "in-cluster", "token-file", "token-stdin", "annotation", "provider",
		"cache-dir", "no-cache", "timeout"}
	seen := map[string]string{key(): "none"}
	for _, s := range parsed(t).Settings() {
		k := key(flagsFor(s)...)
		same, found := seen[k]
		if about := slices.Contains(plain, s.Name); about != found || about && same != "none" {
			t.Errorf("--%s has the key of %q", s.Name, same)
		}
		if !found {
			seen[k] = s.Name
		}
	}
}

// Files count by what is in them.
func TestContentsOfFilesAreInTheKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	key := func(content string) string {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		k, err := parsed(t, "--exchange-client-secret-file="+file).key(&Source{key: &sourceKey{}}, request{})
		if err != nil {
			t.Fatal(err)
		}
		return k.String()
	}
	if key("one") == key("two") {
		t.Error("two secrets have the same key")
	}
	flag := key("one")
	t.Setenv("AZURE_ENVIRONMENT_FILEPATH", file)
	if first := key("one"); first == flag || first == key("two") {
		t.Error("the file of the environment does not count")
	}
	if _, err := parsed(t).key(&Source{key: &sourceKey{}}, request{Target: []string{"\xff"}}); err == nil {
		t.Error("a target that is not UTF-8 has a key")
	}
}

// Every name of an option in a message of the library has a flag, or something else that a person can do.
func TestEveryOptionOfAMessageHasAFlag(t *testing.T) {
	names := parsed(t).flagsOfOptions()
	found := map[string]bool{}
	without := map[string]string{"Policy.AllowConfigMap": "wid reads no ConfigMaps", "Provider.ActorTokenType": "wid sends no actor token"}
	for _, dir := range []string{".", "aws", "azure", "gcp", "exchange", "token", "plugin"} {
		files, err := filepath.Glob(filepath.Join("..", "..", "..", "..", "auth", dir, "*.go"))
		if err != nil || len(files) < 3 {
			t.Fatalf("%d files in auth/%s, %v", len(files), dir, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(tree, func(n ast.Node) bool {
				literal, ok := n.(*ast.BasicLit)
				if !ok || literal.Kind != token.STRING {
					return true
				}
				text, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				for _, match := range goName.FindAllStringSubmatch(text, -1) {
					found[match[1]] = true
					if names[match[1]] == "" && without[match[1]] == "" && !strings.HasPrefix(match[1], "Settings.") {
						t.Errorf("%s: no flag is known for %s in %q", file, match[1], text)
					}
				}
				return true
			})
		}
	}
	if len(found) < 25 || !found["WithSTSRegion"] || !found["Provider.PrivateClouds"] {
		t.Errorf("found only %d names", len(found))
	}
}

func TestInTermsOfFlags(t *testing.T) {
	id := parsed(t)
	for text, want := range map[string]string{
		"pass WithSTSRegion, or set AWS_REGION":                       "pass --region, or set AWS_REGION",
		`pass WithAuthorityHost("https://login.microsoftonline.us")`:  `pass --authority-host "https://login.microsoftonline.us"`,
		"pass auth.WithClusterResource with its ARN":                  "pass --cluster with its ARN",
		"correct WithAssumeRole":                                      "correct --assume-role",
		"pass WithAudiences":                                          "pass --audience",
		"leave exchange.WithAudience out":                             "leave --exchange-audience out",
		"set Provider.IssuerURL to exactly what":                      "set --exchange-issuer to exactly what",
		"Without a role nothing works; WithSomethingNew is not known": "Without a role nothing works; WithSomethingNew is not known",
		"pass WithClusterResource or WithClusterAddress":              "pass --cluster or --cluster-address",
	} {
		e := &auth.Error{Reason: auth.ErrDenied, Message: text}
		got := id.InTermsOfFlags(e)
		if got.Error() != "denied: "+want || cli.ExitCode(t.Context(), got) != cli.ExitDenied {
			t.Errorf("%s becomes %v", text, got)
		}
	}
	if id.InTermsOfFlags(nil) != nil {
		t.Error("an error out of nothing")
	}
}

// Every exported option of the library has a flag, or is named here with the reason why not.
func TestEveryOptionHasAFlag(t *testing.T) {
	names := parsed(t).flagsOfOptions()
	without := map[string]string{
		"WithSettings": "there are no tenants", "WithUsage": "it picks among defaults of the settings", "WithPolicy": "whoever runs wid decides",
		"WithMinimumLifetime": "the programs that run wid renew by the expiry that it prints",
		"WithAnnotations":     "--annotation takes the place of the ServiceAccount's own", "WithClusterID": "the key of what is kept on disk has the cluster", "WithProviderOption": "it is for packages", "WithInvalidBefore": "erase of docker and git does that",
	}
	declaration := regexp.MustCompile(`(?m)^func (With[A-Z]\w*)\(`)
	var count int
	for _, dir := range []string{".", "aws", "azure", "gcp", "exchange", "token"} {
		files, err := filepath.Glob(filepath.Join("..", "..", "..", "..", "auth", dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, match := range declaration.FindAllStringSubmatch(string(content), -1) {
				count++
				if names[match[1]] == "" && without[match[1]] == "" {
					t.Errorf("%s: %s has no flag", file, match[1])
				}
			}
		}
	}
	if count < 30 {
		t.Errorf("found only %d options", count)
	}
}
