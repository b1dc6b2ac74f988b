package provider_test

import (
	"testing"

	"github.com/workloadid/workloadid/internal/testing/valuestest"
)

func TestCommentOfCauseListsEachValue(t *testing.T) {
	valuestest.Check(t, "errors.go", "../../internal/authcause/authcause.go")
}
