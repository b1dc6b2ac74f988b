package issuercheck_test

import (
	"testing"

	"github.com/workloadid/workloadid/internal/testing/valuestest"
)

func TestCommentOfCheckListsEachName(t *testing.T) {
	valuestest.Check(t, "../../auth/issuer/verify.go", "issuercheck.go")
}
