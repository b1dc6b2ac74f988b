package credentials

import (
	"testing"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/authcause"
)

func TestRemedyByCause(t *testing.T) {
	for name, tc := range map[string]struct {
		cause provider.Cause
		want  string
	}{
		"audience not allowed": {authcause.AudienceNotAllowed, "denied: no; pass it (--audience)"},
		"another cause":        {authcause.TokenExpired, "denied: no; do this (--audience)"},
	} {
		t.Run(name, func(t *testing.T) {
			err := &auth.Error{Reason: auth.ErrDenied, Message: "no", Cause: tc.cause, Remedy: "do this", Option: "auth.Policy.Audiences"}
			if got := parsed(t).InTermsOfFlags(err).Error(); got != tc.want {
				t.Errorf("got %q", got)
			}
		})
	}
}
