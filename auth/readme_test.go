package auth_test

import (
	"os"
	"strings"
	"testing"
)

// The page shows Sources as it is compiled here.
func TestPageShowsSources(t *testing.T) {
	source, err := os.ReadFile("example_sources_test.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../docs/workload-identity.md")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(source), "// Sources is")
	if !strings.Contains(string(page), "```go\n// Sources is"+code+"```") {
		t.Error("docs/workload-identity.md differs from example_sources_test.go")
	}
}
