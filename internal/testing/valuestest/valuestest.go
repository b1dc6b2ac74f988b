// Package valuestest compares the values that a comment documents with the constants of an internal package.
package valuestest

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// Check fails unless the list "//   - Value: meaning" of one file names the text constants of the other, in their order.
func Check(t *testing.T, documentation, constants string) {
	t.Helper()
	listed, declared := matches(t, documentation, `//   - (\w+):`), matches(t, constants, `= "(\w+)"`)
	if len(declared) == 0 || !slices.Equal(listed, declared) {
		t.Errorf("%s lists %q, %s has %q", documentation, listed, constants, declared)
	}
}

func matches(t *testing.T, file, pattern string) (found []string) {
	t.Helper()
	content, err := os.ReadFile(file) //nolint:gosec // of this module
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(content), -1) {
		found = append(found, match[1])
	}
	return found
}
