//go:build unix

package directory_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/filelock"
)

func TestAPipeDoesNotHang(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "file"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := open(t, dir).Read(t.Context(), "file"); err == nil {
		t.Error("it was read")
	}
}

func TestALockedDirectoryIsGivenUp(t *testing.T) {
	dir := t.TempDir()
	mustWrite(t, open(t, dir), "file", "one", "")
	lock, err := os.OpenFile(filepath.Join(dir, ".workloadid", "lock"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := filelock.Lock(t.Context(), lock); err != nil {
		t.Fatal(err)
	}
	_, version := mustRead(t, open(t, dir), "file")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := open(t, dir).Write(ctx, "file", []byte("two"), version); !errors.Is(err, context.DeadlineExceeded) ||
		!errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("error %v", err)
	}
}
