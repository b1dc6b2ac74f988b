package registration_test

import (
	"os"
	"strings"
	"testing"
)

// The documentation of the package shows example_programs_test.go as it is compiled, so that its code can be pasted.
func TestDocumentationShowsThePrograms(t *testing.T) {
	code, err := os.ReadFile("example_programs_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, programs, _ := strings.Cut(string(code), "package registration_test\n\n")
	programs, _, ok := strings.Cut(programs, "\n// The two programs")
	if !ok {
		t.Fatal("example_programs_test.go has no programs")
	}
	var want strings.Builder
	for line := range strings.Lines(programs) {
		if line == "\n" {
			want.WriteString("//\n")
		} else {
			want.WriteString("//\t" + line)
		}
	}
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(doc), want.String()) {
		t.Errorf("doc.go differs from example_programs_test.go: copy these lines to it\n%s", want.String())
	}
}
