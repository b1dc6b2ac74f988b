package aws

import "github.com/workloadid/workloadid/cmd/wid/internal/doctor"

// CheckAudience checks the client IDs of the issuer's OIDC provider that a test has written.
func CheckAudience(q *doctor.TrustQuery, clientIDs []string) doctor.Finding {
	t, f := newTarget(q)
	if t != nil {
		f = t.checkAudience(clientIDs)
	}
	return f
}

// CheckPolicy checks the trust policy that a test has written.
func CheckPolicy(q *doctor.TrustQuery, document string) doctor.Finding {
	t, f := newTarget(q)
	if t != nil {
		f = t.checkPolicy([]byte(document))
	}
	return f
}
