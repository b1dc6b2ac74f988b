package authtest_test

import (
	"testing"

	"github.com/workloadid/workloadid/internal/testing/document"
)

func TestPageShowsTheProvider(t *testing.T) {
	page := document.Read(t, "docs/writing-a-provider.md")
	page.Shows("example_provider_test.go", "import (")
	page.Shows("example_provider_harness_test.go", "func TestVault(")
}
