package doctor_test

import (
	"fmt"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/doctor"
)

// A controller sets the condition with meta.SetStatusCondition.
func ExampleConditionOf() {
	err := &auth.Error{Provider: "aws", Reason: auth.ErrDenied, Cause: "TokenExpired", Message: "the token has expired"}
	c := doctor.ConditionOf(err, "IdentityReady", 1)
	fmt.Println(c.Status, c.Reason)
	fmt.Println(doctor.ClassOf(err).Summary)
	// Output:
	// False TokenExpired
	// the token has expired
}
