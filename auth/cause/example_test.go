package cause_test

import (
	"fmt"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/cause"
)

// A controller sets the condition with meta.SetStatusCondition.
func ExampleConditionOf() {
	err := &auth.Error{Provider: "aws", Reason: auth.ErrDenied, Cause: "TokenExpired", Message: "the token has expired"}
	c := cause.ConditionOf(err, "IdentityReady", 1)
	fmt.Println(c.Status, c.Reason)
	fmt.Println(cause.ClassOf(err).Summary)
	// Output:
	// False TokenExpired
	// the token has expired
}
