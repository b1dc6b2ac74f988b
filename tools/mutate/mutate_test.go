package main

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	got, err := parseTable("# of a\n\na-001\ta/a.go\tT.F\tx  <\t\tx > 1\n")
	if err == nil {
		t.Errorf("parseTable = %v of six columns, want an error", got)
	}
	got, err = parseTable("# of a\n\na-001\ta/a.go\tT.F\tx < 1\t-\n")
	if want := (mutant{"a-001", "a/a.go", "T.F", "x < 1", ""}); err != nil || len(got) != 1 || got[0] != want {
		t.Errorf("parseTable = %v, %v, want %v", got, err, want)
	}
}

const source = `package a

const limit, other = 1, 2

// F has x < limit.
func F(x int) bool { return x < limit }

type T[K any] struct{}

// F has x < limit.
func (t *T[K]) F(x int) error {
	// x < limit
	if x < limit && // a comment
		g(
			x,
			"a b",
		) {
		return nil
	}
	g(1, 2); g(1, 2)
	return nil
}
`

func TestApply(t *testing.T) {
	for name, row := range map[string]struct {
		function, old, new string
		want               string // part of the result, or of the error
	}{
		"function":                      {"F", "x < limit", "x > limit", "bool { return x > limit }"},
		"method of a generic type":      {"T.F", "x < limit", "x > limit", "// x < limit\n\tif x > limit && //"},
		"constant":                      {"limit", "1, 2", "3, 2", "const limit, other = 3, 2"},
		"type":                          {"T", "struct{}", "int", "type T[K any] int"},
		"deleted":                       {"T.F", `&& g(x, "a b")`, "", "if x < limit  {"},
		"line breaks where no space is": {"T.F", `g(x, "a b") {`, "true {", "true {"},
		"no such text":                  {"F", "x <= limit", "true", "F has 0 times"},
		"text twice":                    {"T.F", "g(1, 2)", "g(1, 1)", "T.F has 2 times"},
		"text of a comment":             {"T.F", "a comment", "", "T.F has 0 times"},
		"no such declaration":           {"U.F", "x", "y", "0 declarations of U.F"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := mutant{"a-001", "a.go", row.function, row.old, row.new}.apply([]byte(source))
			text := string(got)
			if err != nil {
				text = err.Error()
			}
			if !strings.Contains(text, row.want) {
				t.Errorf("apply gives %s\n%v\nwant %q", got, err, row.want)
			}
		})
	}
}

func TestFailure(t *testing.T) {
	const pass, fail = `{"Action":"pass","Package":"p"}`, `{"Action":"fail","Package":"p","Elapsed":0.1}`
	for name, row := range map[string]struct {
		want string
		out  []string
	}{
		"all pass": {"", []string{`{"Action":"pass","Package":"p","Test":"TestA"}`, pass}},
		"first of two, with a row": {"TestA", []string{`{"Action":"fail","Package":"p","Test":"TestA/row"}`,
			`{"Action":"fail","Package":"p","Test":"TestA"}`, `{"Action":"fail","Package":"p","Test":"TestB"}`, fail}},
		"timeout": {"timeout", []string{
			`{"Action":"output","Package":"p","Test":"TestA","Output":"panic: test timed out after 1s\n"}`,
			`{"Action":"fail","Package":"p","Test":"TestA"}`, fail}},
		"exit": {"panic", []string{`{"Action":"output","Package":"p","Output":"exit status 3\n"}`, fail}},
		"does not build": {"", []string{`{"ImportPath":"p","Action":"build-fail"}`,
			`{"Action":"fail","Package":"p","FailedBuild":"p"}`}},
		"no tests": {"", []string{`{"Action":"skip","Package":"p"}`}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := failure([]byte(strings.Join(row.out, "\n")))
			if err != nil || got != row.want {
				t.Errorf("failure = %q, %v, want %q", got, err, row.want)
			}
		})
	}
	if got, err := failure([]byte("go: no such package\n")); err == nil {
		t.Errorf("failure = %q without a result, want an error", got)
	}
}

func TestResults(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.tsv")
	if got, err := readResults(file); err != nil || len(got) != 0 {
		t.Errorf("readResults = %v, %v without a file, want none", got, err)
	}
	want := map[string]result{"b-001": {caught, "a TestA"}, "a-001": {survived, "-"}}
	if err := writeResults(file, want); err != nil {
		t.Fatal(err)
	}
	got, err := readResults(file)
	if err != nil || len(got) != 2 || got["a-001"] != want["a-001"] || got["b-001"] != want["b-001"] {
		t.Errorf("readResults = %v, %v, want %v", got, err, want)
	}
}
