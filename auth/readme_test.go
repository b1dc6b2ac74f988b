package auth_test

import (
	"testing"

	"github.com/workloadid/workloadid/internal/testing/document"
)

func TestPagesShowCompiledCode(t *testing.T) {
	document.Read(t, "docs/workload-identity.md").Shows("example_sources_test.go", "// Sources is")
	document.Read(t, "docs/migrating-from-fluxcd.md").Shows("example_port_test.go", "// Ported is")
}
