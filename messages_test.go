package workloadid_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ofPrograms finds the words of one kind of reader: names of Go options,
// commands of wid, and flags.
var ofPrograms = regexp.MustCompile(
	`\b(With(out)?[A-Z]\w|TokenType[A-Z]|(Provider|Policy|Settings)\.([A-Z%]|$))|\bwid [a-z]|(^| )--[a-z-]+[ :]`)

// mayName are the files whose texts may hold such words, with the reason.
var mayName = map[string]string{
	"auth/cause/class.go":                    "holds the commands that grant",
	"auth/cause/class_aws.go":                "holds the commands that grant",
	"auth/cause/class_azure.go":              "holds the commands that grant",
	"auth/cause/class_gcp.go":                "holds the commands that grant",
	"auth/authtest/conformance.go":           "its reader writes a provider in Go",
	"auth/authtest/conformance_http.go":      "its reader writes a provider in Go",
	"auth/azure/arm.go":                      "prints a command of az",
	"issuer/verify.go":                       "names flags of the API server, which it examines",
	"issuer/verify_documents.go":             "names flags of the API server, which it examines",
	"bootstrap/clusterinfo.go":               "prints kubeadm join",
	"cache/flags.go":                         "checks the flags that it binds",
	"registration/kubeconfig/kubeconfig.go":  "prints a command of kubectl",
	"registration/internal/advice/advice.go": "holds the commands for readers of conditions and Events",
}

// Texts of the library suit every reader: auth.Error.Option holds the name of
// the Go option, which exists.
func TestMessagesNameNoOptionsAndCommands(t *testing.T) {
	names := map[string]bool{}
	for _, dir := range []string{"auth", "auth/aws", "auth/azure", "auth/gcp", "auth/token", "auth/exchange",
		"auth/github", "auth/spiffe", "auth/grpccreds", "cache"} {
		addNames(t, names, filepath.Base(dir), filepath.FromSlash(dir))
	}
	options := 0
	for _, dir := range []string{"auth", "cache", "cloudtest", "issuer", "podidentity", "registration", "bootstrap"} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") &&
				mayName[filepath.ToSlash(path)] == "" {
				options += checkTexts(t, path, names)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if options < 40 {
		t.Errorf("only %d options were found", options)
	}
}

// kubectl approves any subject, a cluster administrator's too. wid hub accept
// --approve-request parses the subject first, so nothing that ships advises the
// former.
func TestNothingAdvisesToApproveUnread(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(path, "_test.go") ||
			!slices.Contains([]string{".go", ".md", ".yaml", ".json"}, filepath.Ext(path)) {
			return err
		}
		text, err := os.ReadFile(path) //nolint:gosec // a file of this repository
		if err == nil && approvesUnread.Match(text) {
			t.Errorf("%s advises %q", path, approvesUnread.Find(text))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

var approvesUnread = regexp.MustCompile(`certificate\s+approve\b|adm\s+certificate|, or approve the request`)

// anOption matches the name of an option as auth.Error.About takes it.
var anOption = regexp.MustCompile(`^[a-z]+\.[A-Z][A-Za-z.]+$`)

func checkTexts(t *testing.T, path string, names map[string]bool) (options int) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(literal.Value)
		switch {
		case err != nil:
			t.Error(err)
		case anOption.MatchString(text):
			options++
			if !names[text] {
				t.Errorf("%s: %s does not exist", files.Position(n.Pos()), text)
			}
		case ofPrograms.MatchString(text):
			t.Errorf("%s: %q names an option, a flag or a command: use the domain's words, and auth.Error.Option",
				files.Position(n.Pos()), text)
		}
		return true
	})
	return options
}
