package auth

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/workloadid/workloadid/auth/provider"
)

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
