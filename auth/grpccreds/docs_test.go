package grpccreds_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/testing/document"
)

func TestPageShowsCompiledCode(t *testing.T) {
	document.Read(t, "docs/services.md").Shows("example_test.go", "// Check calls")
}

// Importers get the release of the library that has the same version.
func TestModuleRequiresTheRelease(t *testing.T) {
	module, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	newest := regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+)`).FindStringSubmatch(document.Read(t, "CHANGELOG.md").Text)
	if want := "github.com/workloadid/workloadid v" + newest[1] + "\n"; !strings.Contains(string(module), want) {
		t.Errorf("go.mod does not require %s", want)
	}
}
