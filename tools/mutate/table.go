package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// mutant is a line of a table.
type mutant struct{ id, file, function, old, new string }

func readTables(files []string) (all []mutant, err error) {
	known := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // named by the user
		if err != nil {
			return nil, err
		}
		mutants, err := parseTable(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, m := range mutants {
			if known[m.id] {
				return nil, fmt.Errorf("%s: two mutants have the id %q", file, m.id)
			}
			known[m.id] = true
		}
		all = append(all, mutants...)
	}
	return all, nil
}

func parseTable(text string) (mutants []mutant, err error) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, "\r\n")
		if line == "" || line[0] == '#' {
			continue
		}
		f := strings.Split(line, "\t")
		if len(f) != 5 || slices.Contains(f, "") {
			return nil, fmt.Errorf("line %d: want id, file, function, old and new, separated by tabs, not %q", n, line)
		}
		m := mutant{f[0], f[1], f[2], strings.TrimSpace(f[3]), strings.TrimSpace(f[4])}
		if m.new == "-" {
			m.new = ""
		}
		mutants = append(mutants, m)
	}
	return mutants, nil
}

// apply returns the source with the change of m.
func (m mutant) apply(source []byte) ([]byte, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, m.file, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	code := bytes.Clone(source)
	for _, group := range file.Comments {
		for i := files.Position(group.Pos()).Offset; i < files.Position(group.End()).Offset; i++ {
			code[i] = ' '
		}
	}
	var found []ast.Node
	for _, decl := range file.Decls {
		found = append(found, named(decl, m.function)...)
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("%s has %d declarations of %s", m.file, len(found), m.function)
	}
	from, to := files.Position(found[0].Pos()).Offset, files.Position(found[0].End()).Offset
	matches := pattern(m.old).FindAllIndex(code[from:to], -1)
	if len(matches) != 1 {
		return nil, fmt.Errorf("%s: %s has %d times %q", m.file, m.function, len(matches), m.old)
	}
	return slices.Concat(source[:from+matches[0][0]], []byte(m.new), source[from+matches[0][1]:]), nil
}

// named returns the parts of a declaration with the name.
func named(decl ast.Decl, name string) (found []ast.Node) {
	if f, ok := decl.(*ast.FuncDecl); ok {
		if receiver(f)+f.Name.Name == name {
			return []ast.Node{f}
		}
		return nil
	}
	for _, spec := range decl.(*ast.GenDecl).Specs { //nolint:forcetypeassert // the only other one without errors
		switch s := spec.(type) {
		case *ast.TypeSpec:
			if s.Name.Name == name {
				found = append(found, s)
			}
		case *ast.ValueSpec:
			if slices.ContainsFunc(s.Names, func(n *ast.Ident) bool { return n.Name == name }) {
				found = append(found, s)
			}
		}
	}
	return found
}

// receiver returns "Type." for a method, and "" for a function.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	expr := f.Recv.List[0].Type
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		case *ast.Ident:
			return e.Name + "."
		default:
			return ""
		}
	}
}

// pattern matches old, however its lines are broken: white space matches any
// other, and none where it stands beside a bracket or comma. Where a formatter
// breaks a line, old needs no white space: after an opening bracket, and before
// a closing one with a comma.
func pattern(old string) *regexp.Regexp {
	const opening, closing = "([{", ")]}"
	var b strings.Builder
	var last rune
	space := false
	for _, c := range old {
		if unicode.IsSpace(c) {
			space = true
			continue
		}
		switch {
		case last == 0:
		case strings.ContainsRune(closing, c):
			b.WriteString(`\s*,?\s*`)
		case strings.ContainsRune(opening+closing+",.", last) || space && strings.ContainsRune(opening+",", c):
			b.WriteString(`\s*`)
		case space:
			b.WriteString(`\s+`)
		}
		b.WriteString(regexp.QuoteMeta(string(c)))
		last, space = c, false
	}
	return regexp.MustCompile(b.String())
}

const (
	caught   = "caught"
	survived = "survived"
	built    = "built"   // by -check
	invalid  = "invalid" // does not apply or compile
)

// result says what became of a mutant. by names the package and the test that
// caught it.
type result struct{ what, by string }

func readResults(file string) (map[string]result, error) {
	text, err := os.ReadFile(file) //nolint:gosec // named by the user
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	results := map[string]result{}
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimRight(line, "\r\n"), "\t")
		if len(f) != 3 {
			return nil, fmt.Errorf("%s: want id, result and test, separated by tabs, not %q", file, line)
		}
		results[f[0]] = result{f[1], f[2]}
	}
	return results, nil
}

// writeResults replaces the file at once, so that an interrupt leaves the old
// one.
func writeResults(file string, results map[string]result) error {
	var lines []string
	for id, r := range results {
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s\n", id, r.what, cmp.Or(r.by, "-")))
	}
	slices.Sort(lines)
	temp, err := os.CreateTemp(filepath.Dir(file), ".results")
	if err != nil {
		return err
	}
	_, err = temp.WriteString(strings.Join(lines, ""))
	if err = cmp.Or(err, temp.Chmod(0o644), temp.Close()); err == nil {
		err = os.Rename(temp.Name(), file)
	}
	if err != nil {
		_ = os.Remove(temp.Name())
	}
	return err
}
