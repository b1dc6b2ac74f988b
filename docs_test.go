package workloadid_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/testing/document"
)

// documented are the directories of the packages that
// docs/migrating-from-fluxcd.md names, by their qualifier.
var documented = map[string]string{"auth": "auth", "provider": "auth/provider", "aws": "auth/aws",
	"azure": "auth/azure",
	"gcp":   "auth/gcp", "github": "auth/github", "spiffe": "auth/spiffe", "token": "auth/token", "cache": "cache",
	"metrics": "cache/metrics"}

// Names in the column "here" exist, down to fields and methods.
func TestMigrationNamesExist(t *testing.T) {
	names := map[string]bool{}
	for qualifier, dir := range documented {
		addNames(t, names, qualifier, dir)
	}
	page, checked := document.Read(t, "docs/migrating-from-fluxcd.md"), 0
	qualified := regexp.MustCompile(`^[a-z]+\.[A-Z][A-Za-z0-9.]*$`)
	for _, row := range append(page.Rows("fluxcd/pkg/auth, fluxcd/pkg/cache"), page.Rows("there")...) {
		for _, name := range document.Names(row[1]) {
			if !qualified.MatchString(name) {
				continue
			}
			if checked++; !names[name] {
				t.Errorf("%s does not exist", name)
			}
		}
	}
	if checked < 50 {
		t.Errorf("only %d names were found", checked)
	}
}

// Links between pages, and the pages that messages and comments name, exist
// with their anchors.
func TestLinksAndAnchorsExist(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "git", "ls-files", "*.md", "*.go", "*.yaml").Output()
	if err != nil {
		t.Fatal(err)
	}
	link, named := regexp.MustCompile(`\]\(([^)\s]+)\)`), regexp.MustCompile(`\bdocs/[a-z/-]+\.md(#[a-z0-9_-]+)?`)
	anchors := map[string][]string{}
	checked := 0
	for file := range strings.FieldsSeq(string(out)) {
		text := document.Read(t, file).Text
		targets := named.FindAllString(text, -1)
		if strings.HasSuffix(file, ".md") {
			for _, match := range link.FindAllStringSubmatch(text, -1) {
				switch {
				case strings.Contains(match[1], ":"): // an address
				case strings.HasPrefix(match[1], "#"):
					targets = append(targets, file+match[1])
				default:
					targets = append(targets, path.Join(path.Dir(file), match[1]))
				}
			}
		}
		for _, target := range targets {
			checked++
			page, anchor, _ := strings.Cut(target, "#")
			if _, err := os.Stat(page); err != nil {
				t.Errorf("%s names %s: %v", file, target, err)
				continue
			}
			if anchor != "" && anchors[page] == nil {
				anchors[page] = document.Read(t, page).Anchors()
			}
			if anchor != "" && !slices.Contains(anchors[page], anchor) {
				t.Errorf("%s names %s, which has no such heading", file, target)
			}
		}
	}
	if checked < 200 {
		t.Errorf("only %d links were found", checked)
	}
}

// addNames adds qualifier.Name for each declaration of a package, and
// qualifier.Type.Member for each field and method.
func addNames(t *testing.T, names map[string]bool, qualifier, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			for _, name := range declared(decl) {
				names[qualifier+"."+name] = true
			}
		}
	}
}

func declared(decl ast.Decl) (names []string) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return []string{d.Name.Name}
		}
		receiver := d.Recv.List[0].Type
		if star, ok := receiver.(*ast.StarExpr); ok {
			receiver = star.X
		}
		if of, ok := receiver.(*ast.Ident); ok {
			return []string{of.Name + "." + d.Name.Name}
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.ValueSpec:
				for _, n := range s.Names {
					names = append(names, n.Name)
				}
			case *ast.TypeSpec:
				names = append(names, s.Name.Name)
				if fields, ok := s.Type.(*ast.StructType); ok {
					for _, f := range fields.Fields.List {
						for _, n := range f.Names {
							names = append(names, s.Name.Name+"."+n.Name)
						}
					}
				}
			}
		}
	}
	return names
}

// Examples are code to copy, so no file with one imports what another module
// cannot.
func TestExamplesImportNoInternalPackage(t *testing.T) {
	seen := 0
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") || strings.Contains(filepath.ToSlash(path), "internal/") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil || len(doc.Examples(file)) == 0 || !strings.HasSuffix(file.Name.Name, "_test") {
			return err
		}
		seen++
		for _, spec := range file.Imports {
			if strings.Contains(spec.Path.Value, "/internal/") {
				t.Errorf("%s imports %s: move the tests that need it to another file", path, spec.Path.Value)
			}
		}
		return nil
	})
	if err != nil || seen < 15 {
		t.Errorf("got %d files with examples and the error %v, want at least 15", seen, err)
	}
}
