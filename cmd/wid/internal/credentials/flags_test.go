package credentials

import (
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
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
	return []string{`some "value", and more`}
}

func flagsFor(s Setting) (args []string) {
	for _, value := range sample(s) {
		args = append(args, "--"+s.Name+"="+value)
	}
	return args
}

// Every flag that can change what a credential is keeps credentials apart in
// the cache; the others do not.
func TestEveryFlagIsInTheKey(t *testing.T) {
	key := func(args ...string) string {
		id := parsed(t, args...)
		return id.key(&source{}, wanted("", nil)).String()
	}
	plain := []string{"service-account", "kubeconfig", "context", "in-cluster", "token-file", "annotation", "provider",
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

// A variable that is set but empty is refused. --no-environment ignores all but
// those of the program itself.
func TestEmptyVariablesAreRefused(t *testing.T) {
	for _, s := range parsed(t).Settings() {
		t.Run(s.Name, func(t *testing.T) {
			t.Setenv(variableOf(s.Name), "")
			if err := parsed(t).fromEnvironment(); err == nil || !strings.Contains(err.Error(), variableOf(s.Name)) ||
				!strings.Contains(err.Error(), "give it a value, or leave it out") {
				t.Errorf("got %v, want an error that names %s", err, variableOf(s.Name))
			}
			err := parsed(t, "--no-environment").fromEnvironment()
			if own := s.Group == GroupProgram; (err != nil) != own {
				t.Errorf("with --no-environment: got %v, want an error: %t", err, own)
			}
		})
	}
}

// Files count by what is in them.
func TestContentsOfFilesAreInTheKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	key := func(content string) string {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return parsed(t, "--exchange-client-secret-file="+file).key(&source{}, wanted("", nil)).String()
	}
	if key("one") == key("two") {
		t.Error("two secrets have the same key")
	}
	flag := key("one")
	t.Setenv("AZURE_ENVIRONMENT_FILEPATH", file)
	if first := key("one"); first == flag || first == key("two") {
		t.Error("the file of the environment does not count")
	}
}

// Texts that are not UTF-8 keep credentials apart too.
func TestBytesAreInTheKey(t *testing.T) {
	key := func(target, variable, flag string) string {
		t.Setenv("AZURE_TENANT_ID", variable)
		r := wanted("cluster", nil)
		r.target = []string{target}
		return parsed(t, "--audience="+flag).key(&source{}, r).String()
	}
	seen := map[string]string{}
	for _, text := range []string{"\xff", "\xfe", `\xff`, "\ufffd"} {
		for n, k := range []string{key(text, "", ""), key("", text, ""), key("", "", text)} {
			if place := fmt.Sprintf("%q in part %d", text, n); seen[k] != "" {
				t.Errorf("%s has the key of %s", place, seen[k])
			} else {
				seen[k] = place
			}
		}
	}
}

// wanted is a request of AWS.
func wanted(kind string, mint func(context.Context, []auth.Option) (*credential, error)) request {
	return request{kind: kind, provider: &aws.Provider{}, mint: mint}
}

// anOption matches the name of an option as auth.Error.About takes it.
var anOption = regexp.MustCompile(`^"([a-z]+\.[A-Z][A-Za-z.]+)"$`)

// noSource is why there are no flags for sources of subject tokens.
const noSource = "wid uses the tokens of a cluster or a file"

// The Go option of each error of the library has a flag, or something else that
// a person can do.
func TestEveryOptionOfAnErrorHasAFlag(t *testing.T) {
	without := map[string]string{"auth.Policy.AllowConfigMap": "wid reads no ConfigMaps",
		"auth.Policy.AllowCluster": "wid has no objects", "exchange.Provider.ActorTokenType": "wid sends no actor token",
		"exchange.Provider.ActorToken": "wid sends no actor token", "exchange.Provider.Grant": "--service sets it",
		"exchange.Provider.Headers":  "--service sets them",
		"exchange.Provider.JSONBody": "--service sets it", "exchange.Provider.AssumeBearer": "--service sets it",
		"azure.Provider.IdentityBindings":  "wid runs in no pod with AKS's annotation",
		"exchange.Provider.ClientAudience": "wid sends no client assertion",
		"exchange.Provider.DefaultScopes":  "--service sets them",
		"auth.WithSubjectIssuer":           noSource, "aws.WebIdentity.RoleARN": noSource,
		"aws.WebIdentity.SigningAlgorithm": noSource,
		"aws.WebIdentity.Lifetime":         noSource, "aws.WebIdentity.Tags": noSource,
		"auth.Policy.AllowCrossNamespace": "wid has no objects", "auth.Policy.AllowProxy": "wid allows all proxies",
		"auth.WithOwner": "wid has no objects",
		"auth.WithCache": "wid has no objects", "auth.WithBoundObject": "wid has no objects",
		"auth.WithHTTPClient": "only tests have one", "auth.WithGitURL": "git gives it",
		"token.Provider.Registries": "wid allows the one"}
	id, found := parsed(t), 0
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
				if !ok || !anOption.MatchString(literal.Value) {
					return true
				}
				found++
				option := strings.Trim(literal.Value, `"`)
				if id.FlagsOf(option) == "" && without[option] == "" && !strings.HasPrefix(option, "auth.Settings.") {
					t.Errorf("%s: no flag is known for %s", file, option)
				}
				return true
			})
		}
	}
	if found < 50 {
		t.Errorf("found only %d options", found)
	}
}

func TestInTermsOfFlags(t *testing.T) {
	id := parsed(t)
	for option, want := range map[string]string{
		"auth.WithSTSRegion": " (--region)",
		"auth.WithClusterResource, aws.WithClusterName, auth.WithSTSRegion": " (--cluster, --cluster-name, --region)",
		"azure.Provider.PrivateClouds":                                      " (AZURE_ENVIRONMENT_FILEPATH)",
		"auth.WithSubjectToken, exchange.Provider.TokenFile":                " (--token-file)",
		"auth.WithHTTPClient, auth.WithProxyURL":                            " (--proxy-url)",
		"auth.WithSomethingNew":                                             "",
		"":                                                                  "",
	} {
		e := (&auth.Error{Reason: auth.ErrDenied, Message: "no", Remedy: "do this"}).About(option)
		for err, text := range map[error]string{e: "denied: no; do this" + want,
			fmt.Errorf("it failed: %w", e): "it failed: denied: no; do this" + want} {
			if got := id.InTermsOfFlags(err); got.Error() != text || cli.ExitCode(t.Context(), got) != cli.ExitDenied {
				t.Errorf("%s becomes %v", option, got)
			}
		}
		if e.Option != option {
			t.Errorf("the error of the library was changed to %q", e.Option)
		}
	}
	if id.InTermsOfFlags(nil) != nil {
		t.Error("an error out of nothing")
	}
}

// Every exported option of the library has a flag, or is named here with the
// reason why not.
func TestEveryOptionHasAFlag(t *testing.T) {
	id := parsed(t)
	without := map[string]string{
		"WithSettings": "there are no tenants", "WithUsage": "it picks among defaults of the settings",
		"WithPolicy":        "whoever runs wid decides",
		"WithSubjectIssuer": noSource, "WithControllerAnnotations": noSource,
		"WithTracerProvider":  "wid runs for a second, under programs that trace themselves",
		"WithMinimumLifetime": "the programs that run wid renew by the expiry that it prints",
		"WithOwner":           "wid has no objects", "WithBoundObject": "wid has no objects",
		"WithCache": "wid keeps a cache on disk", "WithHTTPClient": "only tests have one", "WithGitURL": "git gives it",
		"WithClusterID": "the key of what is kept on disk has the cluster", "WithProviderOption": "it is for packages",
		"WithInvalidBefore": "erase of docker and git does that",
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
				if id.FlagsOf(path.Base(filepath.ToSlash(filepath.Join("auth", dir)))+"."+match[1]) == "" &&
					without[match[1]] == "" {
					t.Errorf("%s: %s has no flag", file, match[1])
				}
			}
		}
	}
	if count < 30 {
		t.Errorf("found only %d options", count)
	}
}

func TestFlagWinsOverItsVariable(t *testing.T) {
	t.Setenv("WID_PROVIDER", "gcp")
	for want, args := range map[string][]string{"aws": {"--provider=aws"}, "gcp": nil} {
		t.Run(want, func(t *testing.T) {
			id := parsed(t, args...)
			err := id.fromEnvironment()
			if got := id.Flags.Lookup("provider").Value.String(); err != nil || got != want {
				t.Errorf("got the provider %q, %v, want %q", got, err, want)
			}
		})
	}
}
