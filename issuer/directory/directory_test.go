package directory_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/testing/storetest"
	"github.com/workloadid/workloadid/issuer"
	"github.com/workloadid/workloadid/issuer/directory"
)

func open(t *testing.T, dir string) *directory.Store {
	t.Helper()
	store, err := directory.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func mustWrite(t *testing.T, store *directory.Store, path, content, version string) {
	t.Helper()
	if err := store.Write(t.Context(), path, []byte(content), version); err != nil {
		t.Fatal(err)
	}
}

func mustRead(t *testing.T, store *directory.Store, path string) (content, version string) {
	t.Helper()
	read, version, err := store.Read(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return string(read), version
}

func TestStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "dir")
	storetest.Check(t, open(t, dir))
	info, err := os.Stat(filepath.Join(dir, issuer.KeysFile))
	if err != nil || info.Mode().Perm()&0o044 != 0o044 {
		t.Errorf("a web server cannot read it: %v %v", info.Mode(), err)
	}
}

func TestLargeFiles(t *testing.T) {
	dir := t.TempDir()
	store := open(t, dir)
	large := bytes.Repeat([]byte("x"), issuer.MaxFile+1)
	if err := os.WriteFile(filepath.Join(dir, "file"), large, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := store.Read(t.Context(), "file"); !errors.Is(err, provider.ErrMisconfigured) ||
		!strings.Contains(err.Error(), "1048576") {
		t.Errorf("it was read: %v", err)
	}
}

func TestWhatACrashLeaves(t *testing.T) {
	dir := t.TempDir()
	mustWrite(t, open(t, dir), issuer.KeysFile, "one", "")
	for _, path := range []string{issuer.KeysFile + ".new", ".workloadid/lock"} {
		if err := os.WriteFile(filepath.Join(dir, path), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, version := mustRead(t, open(t, dir), issuer.KeysFile)
	mustWrite(t, open(t, dir), issuer.KeysFile, "two", version)
	if _, err := os.Stat(filepath.Join(dir, issuer.KeysFile+".new")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the temporary file is left: %v", err)
	}
}

func TestWritersExclude(t *testing.T) {
	dir := t.TempDir()
	mustWrite(t, open(t, dir), "file", "0", "")
	const writers, each = 4, 25
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			store, err := directory.Open(dir)
			if err != nil {
				t.Error(err)
				return
			}
			for done := 0; done < each; {
				content, version, err := store.Read(t.Context(), "file")
				if err != nil {
					t.Error(err)
					return
				}
				n, err := strconv.Atoi(string(content))
				if err != nil {
					t.Errorf("a part of a file: %q", content)
					return
				}
				switch err := store.Write(t.Context(), "file", []byte(strconv.Itoa(n+1)), version); {
				case err == nil:
					done++
				case !errors.Is(err, issuer.ErrChanged):
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	if content, _ := mustRead(t, open(t, dir), "file"); content != strconv.Itoa(writers*each) {
		t.Errorf("%s writes of %d are left", content, writers*each)
	}
}

func TestRefusals(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, prepare := range map[string]func(dir string) error{
		"a symbolic link to a file outside": func(dir string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, "openid"), 0o700),
				os.Mkdir(filepath.Join(dir, "openid", "v1"), 0o700), os.Symlink(outside, filepath.Join(dir, issuer.KeysFile)))
		},
		"a symbolic link to a folder outside": func(dir string) error {
			return os.Symlink(filepath.Dir(outside), filepath.Join(dir, "openid"))
		},
		"a folder": func(dir string) error { return os.MkdirAll(filepath.Join(dir, issuer.KeysFile), 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			store := open(t, dir)
			if err := prepare(dir); err != nil {
				t.Fatal(err)
			}
			if content, _, err := store.Read(ctx, issuer.KeysFile); !errors.Is(err, provider.ErrMisconfigured) {
				t.Errorf("read %q: %v", content, err)
			}
			if err := store.Write(ctx, issuer.KeysFile, []byte("x"), ""); !errors.Is(err, provider.ErrMisconfigured) {
				t.Errorf("write: %v", err)
			}
			if content, err := os.ReadFile(outside); err != nil || string(content) != "secret" {
				t.Errorf("outside: %q %v", content, err)
			}
		})
	}
	t.Run("a path out of the directory", func(t *testing.T) {
		if err := open(t, t.TempDir()).Write(ctx, "../file", nil, ""); err == nil {
			t.Error("it was written")
		}
	})
	t.Run("a file in place of the directory", func(t *testing.T) {
		if _, err := directory.Open(outside); !errors.Is(err, provider.ErrMisconfigured) ||
			!strings.Contains(err.Error(), outside) {
			t.Errorf("error %v", err)
		}
	})
}
