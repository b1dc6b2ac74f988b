package credentials

import (
	"testing"

	"github.com/workloadid/workloadid/auth"
)

func TestRemedyByCause(t *testing.T) {
	for name, tc := range map[string]struct {
		cause auth.Cause
		want  string
	}{
		"no identity":          {auth.CauseNoOwnIdentity, "denied: no; do this with --service-account"},
		"audience not allowed": {auth.CauseAudienceNotAllowed, "denied: no; pass it with --audience"},
		"another cause":        {auth.CauseTokenExpired, "denied: no; do this"},
	} {
		t.Run(name, func(t *testing.T) {
			err := &auth.Error{Reason: auth.ErrDenied, Message: "no", Cause: tc.cause, Remedy: "do this"}
			if got := parsed(t).InTermsOfFlags(err).Error(); got != tc.want {
				t.Errorf("got %q", got)
			}
		})
	}
}
