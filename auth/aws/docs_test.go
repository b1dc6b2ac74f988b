package aws_test

import (
	"testing"

	"github.com/workloadid/workloadid/internal/testing/document"
)

func TestPageShowsCompiledCode(t *testing.T) {
	document.Read(t, "docs/providers.md").Shows("example_webidentity_test.go", "// AzureToken returns")
}
