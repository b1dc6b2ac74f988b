package authtest_test

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// docs/writing-a-provider.md shows the provider and its test as they are compiled here.
func TestDocumentShowsTheProvider(t *testing.T) {
	provider, err := os.ReadFile("example_provider_test.go")
	harness, harnessErr := os.ReadFile("example_provider_harness_test.go")
	document, documentErr := os.ReadFile("../../docs/writing-a-provider.md")
	if err := errors.Join(err, harnessErr, documentErr); err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(provider), "package authtest_test\n\n")
	_, test, _ := strings.Cut(string(harness), "func TestVault(")
	test, _, _ = strings.Cut(test, "\n// fakeVault")
	for name, block := range map[string]string{
		"example_provider_test.go":         code,
		"example_provider_harness_test.go": "func TestVault(" + test,
	} {
		if !strings.Contains(string(document), "```go\n"+block+"```") {
			t.Errorf("docs/writing-a-provider.md differs from %s", name)
		}
	}
}
