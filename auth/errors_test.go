package auth_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth"
)

func TestTextOfAnErrorEndsWithTheOption(t *testing.T) {
	for name, tc := range map[string]struct {
		err  auth.Error
		want string
	}{
		"remedy and option": {auth.Error{Remedy: "set the audience", Option: "auth.WithAudiences"},
			"denied: no; set the audience (auth.WithAudiences)"},
		"two options": {auth.Error{Remedy: "leave one out", Option: "a.X, a.Y"},
			"denied: no; leave one out (a.X, a.Y)"},
		"no option": {auth.Error{Remedy: "set the audience"}, "denied: no; set the audience"},
		"no remedy": {auth.Error{Option: "auth.WithAudiences"}, "denied: no"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.err.Reason, tc.err.Message = auth.ErrDenied, "no"
			if got := tc.err.Error(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestJSONOfAnErrorHasTheOption(t *testing.T) {
	encoded, err := json.Marshal((&auth.Error{Remedy: "set the audience"}).About("auth.WithAudiences"))
	if err != nil || !strings.Contains(string(encoded), `"Option":"auth.WithAudiences"`) {
		t.Errorf("got %s, %v, want the option in it", encoded, err)
	}
}
