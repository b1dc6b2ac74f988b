package workloadid_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// documented are the directories of the packages that docs/migrating-from-fluxcd.md names, by their qualifier.
var documented = map[string]string{"auth": "auth", "provider": "auth/provider", "aws": "auth/aws", "azure": "auth/azure", "gcp": "auth/gcp", "token": "auth/token",
	"cache": "cache", "metrics": "cache/metrics"}

// Names in the column "here" exist, down to fields and methods.
func TestMigrationNamesExist(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("docs", "migrating-from-fluxcd.md"))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for qualifier, dir := range documented {
		addNames(t, names, qualifier, dir)
	}
	qualified := regexp.MustCompile("`([a-z]+\\.[A-Z][A-Za-z0-9.]*)`")
	checked := 0
	for line := range strings.Lines(string(content)) {
		columns := strings.Split(line, "|")
		if len(columns) < 4 {
			continue
		}
		for _, match := range qualified.FindAllStringSubmatch(columns[2], -1) {
			checked++
			if !names[match[1]] {
				t.Errorf("%s does not exist", match[1])
			}
		}
	}
	if checked < 50 {
		t.Errorf("only %d names were found", checked)
	}
}

// addNames adds qualifier.Name for each declaration of a package, and qualifier.Type.Member for each field and method.
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
