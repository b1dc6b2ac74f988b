package auth_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The documents show code as it is compiled here.
func TestDocumentsShowCompiledCode(t *testing.T) {
	for document, code := range map[string]struct{ file, begin string }{
		"docs/workload-identity.md":     {"example_sources_test.go", "// Sources is"},
		"docs/migrating-from-fluxcd.md": {"example_port_test.go", "// Ported is"},
	} {
		t.Run(document, func(t *testing.T) {
			source, err := os.ReadFile(code.file)
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(filepath.Join("..", document))
			if err != nil {
				t.Fatal(err)
			}
			_, rest, _ := strings.Cut(string(source), code.begin)
			if !strings.Contains(string(text), "```go\n"+code.begin+rest+"```") {
				t.Errorf("%s differs from %s", document, code.file)
			}
		})
	}
}
