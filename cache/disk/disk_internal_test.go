//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/workloadid/workloadid/cache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, dir string) *Cache {
	t.Helper()
	c, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	c.Permanent = func(err error) bool { return errors.As(err, &permanent{}) }
	return c
}

// service mints numbered credentials.
type service struct {
	life  time.Duration
	count atomic.Int64
	err   error
}

func (s *service) mint(context.Context) (Entry, error) {
	n := s.count.Add(1)
	return Entry{Data: fmt.Appendf(nil, "credential %d", n), Expires: time.Now().Add(s.life)}, s.err
}

func get(t *testing.T, c *Cache, key cache.Key, s *service) string {
	t.Helper()
	e, err := c.GetOrMint(t.Context(), key, s.mint)
	if err != nil {
		t.Fatal(err)
	}
	return string(e.Data)
}

func TestLifeOfAnEntry(t *testing.T) {
	for name, tc := range map[string]struct {
		life   time.Duration
		passes time.Duration
		fails  error
		want   string
	}{
		"fresh":                           {time.Hour, 47 * time.Minute, nil, "credential 1"},
		"due for renewal":                 {time.Hour, 49 * time.Minute, nil, "credential 2"},
		"due, but the service is away":    {time.Hour, 58 * time.Minute, errors.New("away"), "credential 1"},
		"due, and the service refuses":    {time.Hour, 49 * time.Minute, permanent{}, "permanent"},
		"about to expire, renewal fails":  {time.Hour, 59*time.Minute + time.Second, errors.New("away"), "away"},
		"expired":                         {time.Hour, 2 * time.Hour, nil, "credential 2"},
		"lives long, is kept for an hour": {12 * time.Hour, time.Hour, errors.New("away"), "away"},
		"lives long, fresh":               {12 * time.Hour, 47 * time.Minute, nil, "credential 1"},
		"lives short, fresh":              {time.Minute, 47 * time.Second, nil, "credential 1"},
		"lives short, margin":             {time.Minute, 55 * time.Second, errors.New("away"), "away"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := open(t, filepath.Join(t.TempDir(), "kept"))
				s := &service{life: tc.life}
				get(t, c, cache.Key{1}, s)
				time.Sleep(tc.passes)
				s.err = tc.fails
				e, err := c.GetOrMint(t.Context(), cache.Key{1}, s.mint)
				got := string(e.Data)
				if err != nil {
					got = err.Error()
				}
				if got != tc.want {
					t.Errorf("got %s", got)
				}
				// A refusal takes the entry along: it does not serve again.
				if s.err = errors.New("away"); errors.As(tc.fails, &permanent{}) {
					if e, err := c.GetOrMint(t.Context(), cache.Key{1}, s.mint); err == nil {
						t.Errorf("%s serves after a refusal", e.Data)
					}
				}
			})
		})
	}
}

func TestAnEntryOfTheFutureIsReplaced(t *testing.T) {
	r := record{Entry: Entry{Expires: time.Now().Add(time.Hour)}, Minted: time.Now().Add(2 * time.Minute)}
	if r.valid() {
		t.Error("the clock was set back, and the entry is used")
	}
}

type permanent struct{}

func (permanent) Error() string { return "permanent" }

// Two caches on one directory are as two processes: one of all callers mints.
func TestManyMintOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "kept")
	var group sync.WaitGroup
	one, two := open(t, dir), open(t, dir)
	s := &service{life: time.Hour}
	for i := range 50 {
		group.Go(func() {
			c := []*Cache{one, two}[i%2]
			if e, err := c.GetOrMint(context.Background(), cache.Key{1}, s.mint); err != nil ||
				string(e.Data) != "credential 1" {
				t.Errorf("got %s, %v, want credential 1", e.Data, err)
			}
		})
	}
	group.Wait()
	if s.count.Load() != 1 {
		t.Errorf("%d exchanges", s.count.Load())
	}
	if got := get(t, one, cache.Key{2}, s); got != "credential 2" {
		t.Errorf("another key: %s", got)
	}
}

// While one mints, a valid entry serves the others.
func TestWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := open(t, filepath.Join(t.TempDir(), "kept")), &service{life: time.Hour}
		get(t, c, cache.Key{1}, s)
		time.Sleep(50 * time.Minute)
		var group sync.WaitGroup
		group.Go(func() {
			_, _ = c.GetOrMint(t.Context(), cache.Key{1}, func(ctx context.Context) (Entry, error) {
				time.Sleep(time.Second) // of the bubble
				return s.mint(ctx)
			})
		})
		synctest.Wait()
		if got := get(t, c, cache.Key{1}, s); got != "credential 1" {
			t.Errorf("got %s", got)
		}
		group.Wait()
	})
}

func TestInvalidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, key := open(t, filepath.Join(t.TempDir(), "kept")), &service{life: time.Hour}, cache.Key{1}
		if err := c.Invalidate(key); err != nil {
			t.Errorf("nothing to invalidate: %v", err)
		}
		get(t, c, key, s)
		for _, want := range []string{"credential 1", "credential 2"} {
			time.Sleep(9 * time.Second)
			if err := c.Invalidate(key); err != nil {
				t.Error(err)
			}
			if got := get(t, c, key, s); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
	})
}

// Every damage is as if there were nothing.
func TestDamage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kept")
	c, s, key := open(t, dir), &service{life: time.Hour}, cache.Key{1}
	get(t, c, key, s)
	path := filepath.Join(dir, fileOf(key))
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := [][]byte{nil, []byte("{}"), []byte("null"), []byte(`{"Minted":"2026-01-01T00:00:00Z"}`),
		make([]byte, 3*maxData)}
	for n := 1; n < len(whole); n += 7 {
		damaged = append(damaged, whole[:n])
	}
	for n, content := range damaged {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := c.read(key); err != nil || r.valid() {
			t.Errorf("damage %d: %v, serves as %q until %s", n, err, r.Data, r.Expires)
		}
	}
	if _, err := c.GetOrMint(t.Context(), cache.Key{3}, func(context.Context) (Entry, error) {
		return Entry{Data: make([]byte, maxData+1), Expires: time.Now().Add(time.Hour)}, nil
	}); !errors.Is(err, ErrNotKept) {
		t.Errorf("too large: %v", err)
	}
}

// Open removes what may no longer be used, and temporary files of processes
// that died. What is not ours stays, however old it is.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "kept")
		c, hour := open(t, dir), time.Now().Add(-time.Hour)
		get(t, c, cache.Key{1}, &service{life: 12 * time.Hour})
		get(t, c, cache.Key{2}, &service{life: 15 * time.Minute})
		keep := []string{fileOf(cache.Key{1}), fileOf(cache.Key{3}), fileOf(cache.Key{4}), fileOf(cache.Key{5}),
			"config.json", "new-new-" + fileOf(cache.Key{}), "x" + fileOf(cache.Key{200})[1:]}
		for _, name := range append(keep[4:], fileOf(cache.Key{3}), tempPrefix+fileOf(cache.Key{6})) {
			if err := errors.Join(os.WriteFile(filepath.Join(dir, name), nil, 0o600),
				os.Chtimes(filepath.Join(dir, name), hour, hour)); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(os.Chmod(filepath.Join(dir, keep[1]), 0o644), os.Mkdir(filepath.Join(dir, keep[2]), 0o700),
			os.Symlink("nowhere", filepath.Join(dir, keep[3]))); err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			passes time.Duration
			left   []string
		}{{14*time.Minute + time.Second, keep}, {46 * time.Minute, keep[1:]}} {
			time.Sleep(tc.passes)
			open(t, dir)
			left, err := filepath.Glob(filepath.Join(dir, "*.json"))
			for i := range left {
				left[i] = filepath.Base(left[i])
			}
			if want := slices.Sorted(slices.Values(tc.left)); err != nil || !slices.Equal(left, want) {
				t.Errorf("left are %q, want %q", left, want)
			}
		}
	})
}

// What others could have read or written is refused, and left alone.
func TestRefusals(t *testing.T) {
	elsewhere := t.TempDir()
	victim := filepath.Join(elsewhere, "victim")
	if err := os.WriteFile(victim, []byte("keep me"), 0o600); err != nil {
		t.Fatal(err)
	}
	key := cache.Key{1}
	for name, tc := range map[string]struct {
		prepare func(dir string) error
		want    string
	}{
		"linked directory": {func(dir string) error { return os.Symlink(elsewhere, dir) }, "symbolic link"},
		"open directory": {func(dir string) error {
			return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o770))
		}, "mode 0770; choose another one"},
		"a file": {func(dir string) error { return os.WriteFile(dir, nil, 0o600) }, "not a directory"},
		"linked entry": {func(dir string) error {
			return errors.Join(os.Mkdir(dir, 0o700), os.Symlink(victim, filepath.Join(dir, fileOf(key))))
		}, "symbolic link"},
		"readable entry": {func(dir string) error {
			path := filepath.Join(dir, fileOf(key))
			return errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o640))
		}, "open to other users"},
		"a pipe": {func(dir string) error {
			return errors.Join(os.Mkdir(dir, 0o700), syscall.Mkfifo(filepath.Join(dir, fileOf(key)), 0o600))
		}, "not a file"},
		"linked lock": {func(dir string) error {
			return errors.Join(os.Mkdir(dir, 0o700), os.Symlink(victim, filepath.Join(dir, "lock-01")))
		}, "symbolic link"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "kept")
			if err := tc.prepare(dir); err != nil {
				t.Fatal(err)
			}
			c, err := Open(dir)
			for _, end := range []string{"/", "//", "/."} {
				other, endErr := Open(dir + end)
				if (endErr == nil) != (err == nil) {
					t.Errorf("with %q: %v", end, endErr)
				}
				if endErr == nil {
					defer other.Close() //nolint:errcheck // nothing is lost
				}
			}
			if err == nil {
				defer c.Close() //nolint:errcheck // nothing is lost
				_, err = c.GetOrMint(t.Context(), key, func(context.Context) (Entry, error) {
					t.Error("it minted")
					return Entry{}, nil
				})
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) ||
				strings.Contains(tc.want, "link") && !errors.Is(err, errRefused) {
				t.Errorf("got %v", err)
			}
		})
	}
	if content, err := os.ReadFile(victim); err != nil || string(content) != "keep me" {
		t.Errorf("the victim holds %q, %v", content, err)
	}
}

func TestNoName(t *testing.T) {
	if _, err := Open(""); err == nil {
		t.Error("the working directory is the cache")
	}
}

// A link in the place of the temporary file is not written through.
func TestTemporaryFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kept")
	c := open(t, dir)
	victim := filepath.Join(t.TempDir(), "victim")
	key := cache.Key{1}
	if err := os.Symlink(victim, filepath.Join(dir, tempPrefix+fileOf(key))); err != nil {
		t.Fatal(err)
	}
	get(t, c, key, &service{life: time.Hour})
	if _, err := os.Lstat(victim); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it was written through: %v", err)
	}
}

// Only the superuser can make a directory of another user, and run this test.
func TestAnotherUser(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kept")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		t.Fatal(err)
	}
	err = check(dir, foreign{info}, true)
	if !errors.Is(err, errRefused) || !strings.Contains(err.Error(), "belongs to user 4242") {
		t.Errorf("got %v", err)
	}
	if os.Geteuid() != 0 {
		return
	}
	if err := os.Chown(dir, 4242, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); !errors.Is(err, errRefused) || !strings.Contains(err.Error(), "belongs to user 4242") {
		t.Errorf("got %v", err)
	}
}

// foreign is a file of another user.
type foreign struct{ os.FileInfo }

func (f foreign) Sys() any {
	s, _ := f.FileInfo.Sys().(*syscall.Stat_t)
	other := *s
	other.Uid = 4242
	return &other
}

// A directory that is full or read-only costs the keeping, not the credential.
func TestReadOnlyDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kept")
	c, s := open(t, dir), &service{life: time.Hour}
	// In the way of the temporary file, also for the superuser.
	if err := os.MkdirAll(filepath.Join(dir, tempPrefix+fileOf(cache.Key{1}), "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	e, err := c.GetOrMint(t.Context(), cache.Key{1}, s.mint)
	if !errors.Is(err, ErrNotKept) || string(e.Data) != "credential 1" ||
		!strings.Contains(err.Error(), "switch the cache off") {
		t.Errorf("got %s, %v, want credential 1 and ErrNotKept", e.Data, err)
	}
}

func ExampleCache_GetOrMint() {
	dir, _ := os.MkdirTemp("", "example-")
	defer os.RemoveAll(dir) //nolint:errcheck // an example
	store, err := Open(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close() //nolint:errcheck // an example
	for range 2 {
		entry, err := store.GetOrMint(context.Background(), cache.Key{1}, func(context.Context) (Entry, error) {
			fmt.Println("minting")
			return Entry{Data: []byte("secret"), Expires: time.Now().Add(time.Hour)}, nil
		})
		fmt.Println(len(entry.Data), err)
	}
	// Output:
	// minting
	// 6 <nil>
	// 6 <nil>
}
