package auth_test

import (
	"os"
	"strings"
	"testing"
)

// The README shows Sources as it is compiled here.
func TestReadmeShowsSources(t *testing.T) {
	source, err := os.ReadFile("example_sources_test.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(source), "// Sources is")
	if !strings.Contains(string(readme), "```go\n// Sources is"+code+"```") {
		t.Error("README.md differs from example_sources_test.go")
	}
}
