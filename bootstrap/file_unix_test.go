//go:build unix

package bootstrap

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// owned is a file with the given owner and mode.
type owned struct {
	fs.FileInfo
	uid  uint32
	mode fs.FileMode
}

func (o owned) Mode() fs.FileMode { return o.mode }
func (o owned) Sys() any          { return &syscall.Stat_t{Uid: o.uid} }

func TestOwnOnly(t *testing.T) {
	us := uint32(os.Geteuid()) //nolint:gosec // IDs of users have 32 bits
	for name, tc := range map[string]struct {
		file owned
		ok   bool
	}{
		"ours":                {owned{uid: us, mode: 0o600}, true},
		"the superuser's":     {owned{uid: 0, mode: 0o644}, true},
		"another user's":      {owned{uid: us + 1, mode: 0o600}, false},
		"the group may write": {owned{uid: us, mode: 0o620}, false},
		"all may write":       {owned{uid: us, mode: 0o602}, false},
	} {
		if err := ownOnly(tc.file); (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A named pipe without a writer would be waited for.
func TestNamedPipesAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(t.Context(), path, nil)
	errWatch := (&Watch{Info: &ClusterInfo{Server: "https://127.0.0.1:1"}, File: path}).Run(t.Context())
	for _, err := range []error{err, errWatch} {
		if err == nil || !strings.Contains(err.Error(), "no regular file") {
			t.Errorf("got %v", err)
		}
	}
}
