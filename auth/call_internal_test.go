package auth

import (
	"errors"
	"io/fs"
	"reflect"
	"testing"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/authcause"
)

// The pooled call is copied for exchanges that outlive it, so a copy shares no memory with the fields that the pool clears.
func TestCopyOfARequestStandsOnItsOwn(t *testing.T) {
	c := &call{request: request{named: true}}
	c.account.Name = "app"
	m := &minter{request: c.request}
	*c = call{}
	if sa := m.serviceAccount(); sa == nil || sa.Name != "app" {
		t.Errorf("got %v", sa)
	}
	if sa := c.serviceAccount(); sa != nil {
		t.Errorf("a cleared call has %v", sa)
	}
	if _, ok := reflect.TypeFor[minter]().FieldByName("key"); ok {
		t.Error("a minter holds the buffer of the pooled key")
	}
}

// Root may read every file, so the test does not depend on the file system.
func TestCauseOfAnUnreadableTokenFile(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want provider.Cause
	}{
		"permission denied": {&fs.PathError{Op: "open", Path: "token", Err: fs.ErrPermission}, authcause.TokenFileForbidden},
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
