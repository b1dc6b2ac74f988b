package auth

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/workloadid/workloadid/auth/provider"
)

// An exchange may outlive its caller: the pool does not clear its call, and clears every other one.
func TestEndLeavesACallToItsExchange(t *testing.T) {
	for _, begun := range []bool{false, true} {
		c, token, err := beginCall(nil, "", nil), Token(nil), error(nil)
		c.named, c.account.Name, c.begun = true, "app", begun
		copied := call{request: c.request}
		c.end(&token, &err)
		if got := c.account.Name; (got == "app") != begun {
			t.Errorf("begun %t: the call has the ServiceAccount %q", begun, got)
		}
		if sa := copied.serviceAccount(); sa == nil || sa.Name != "app" {
			t.Errorf("a copy of the request has %v", sa)
		}
	}
}

// Root may read every file, so the test does not depend on the file system.
func TestCauseOfAnUnreadableTokenFile(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want provider.Cause
	}{
		"permission denied": {&fs.PathError{Op: "open", Path: "token", Err: fs.ErrPermission}, provider.CauseTokenFileForbidden},
		"missing":           {&fs.PathError{Op: "open", Path: "token", Err: fs.ErrNotExist}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var e *Error
			if err := (fileTokenSource{"token"}).unreadable(tc.err); !errors.As(err, &e) || e.Cause != tc.want {
				t.Errorf("got %v", err)
			}
		})
	}
}
