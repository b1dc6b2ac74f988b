package aws

import "github.com/workloadid/workloadid/cmd/wid/internal/doctor"

// CheckPolicy checks the trust policy that a test has written.
func CheckPolicy(q *doctor.TrustQuery, document string) doctor.Finding {
	t, f := newTarget(q)
	if t != nil {
		f = t.checkPolicy([]byte(document))
	}
	return f
}
