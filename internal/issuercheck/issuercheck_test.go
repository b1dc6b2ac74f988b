package issuercheck_test

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

func TestCommentOfCheckListsEachName(t *testing.T) {
	values := func(file, pattern string) (found []string) {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(content), -1) {
			found = append(found, match[1])
		}
		return found
	}
	constants := values("issuercheck.go", `= "(\w+)"`)
	if documented := values("../../auth/issuer/verify.go", `//   - (\w+):`); len(constants) == 0 || !slices.Equal(documented, constants) {
		t.Errorf("the comment lists %q, the package has %q", documented, constants)
	}
}
