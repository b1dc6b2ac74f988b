package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/filelock"
)

// Entry is a credential as it is kept.
type Entry struct {
	// Data is the credential, at most 256 KiB.
	Data    []byte
	Expires time.Time
}

const maxData = 256 << 10

// errRefused is the error of directories and files that other users could have
// read or written.
var errRefused = errors.New("the cache is not safe to use")

// ErrUnsupported is the error of [Open] on systems whose files have no owner
// and no mode to check.
var ErrUnsupported = errors.New("credentials cannot be kept on disk on this system; switch the cache off")

// ErrNotKept is the error of an entry that was minted and is returned, but
// could not be written.
var ErrNotKept = errors.New("the credential is not kept")

// Cache is a directory of credentials. It is safe for concurrent use, by other
// processes too.
type Cache struct {
	// Permanent reports whether an error of mint makes a valid entry void. Nil
	// never does. Set it before the first use.
	Permanent func(err error) bool

	root *os.Root
	dir  string
}

// Open opens a directory and creates it if it does not exist.
func Open(dir string) (*Cache, error) {
	if !supported {
		return nil, ErrUnsupported
	}
	if dir != "" {
		dir = filepath.Clean(dir) // a slash at the end would follow a symbolic link
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the cache directory %q: %w; choose another one, or switch the cache off",
			dir, cause(err))
	}
	named, err := os.Lstat(dir)
	if err != nil {
		return nil, unreadable(dir, err)
	}
	if err := check(dir, named, true); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, unreadable(dir, err)
	}
	opened, err := root.Stat(".")
	if err == nil && !os.SameFile(named, opened) {
		err = fmt.Errorf("%w: %q changes while it is opened", errRefused, dir)
	}
	if err != nil {
		_ = root.Close() // the first error counts
		return nil, err
	}
	c := &Cache{root: root, dir: dir}
	c.sweep()
	return c, nil
}

// Close closes the directory.
func (c *Cache) Close() error { return c.root.Close() }

// check refuses what another user could have read or written.
func check(path string, info fs.FileInfo, dir bool) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{errRefused, path}, args...)...)
	}
	switch mode := info.Mode(); {
	case mode&fs.ModeSymlink != 0:
		return refuse("%q is a symbolic link; remove it, or name the directory itself")
	case dir && !mode.IsDir():
		return refuse("%q is not a directory; choose another one")
	case !dir && !mode.IsRegular():
		return refuse("%q is not a file; remove it")
	case owner(info) != os.Geteuid():
		return refuse("%q belongs to user %d, not to %d; choose another directory", owner(info), os.Geteuid())
	case mode.Perm()&0o077 != 0:
		return refuse("%q is open to other users, mode %04o; choose another one or, if it is the cache's own, remove it: "+
			"it may have been read", mode.Perm())
	}
	return nil
}

func unreadable(path string, err error) error {
	return fmt.Errorf("cannot read %q in the cache: %w; choose another directory, or switch the cache off", path,
		cause(err))
}

func (c *Cache) unwritable(err error) error {
	return fmt.Errorf("cannot write to the cache directory %q: %w; choose another one, or switch the cache off",
		c.dir, cause(err))
}

// cause drops the path, which the message names already.
func cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// GetOrMint returns the entry of the key and mints it if there is no fresh one.
// The key stands for everything that shapes the credential. It returns the
// error of mint, of the context or of a file.
//
// While another process mints, a valid entry is served. Without one, the caller
// waits for a third of the time of ctx and twenty seconds at most, and then
// mints too. An error of mint that is Permanent removes the entry. After any
// other, and if mint takes longer than ten seconds or than ctx, a valid entry
// is still served. A new entry that cannot be written is returned along with
// [ErrNotKept].
func (c *Cache) GetOrMint(ctx context.Context, key cache.Key,
	mint func(ctx context.Context) (Entry, error)) (Entry, error) {
	old, err := c.read(key)
	if err != nil || old.fresh() {
		return old.Entry, err
	}
	unlock, err := c.lock(ctx, key, !old.valid())
	if errors.Is(err, filelock.ErrLocked) {
		return old.Entry, nil
	}
	if err != nil {
		return Entry{}, err
	}
	defer unlock()
	// The process that held the lock may have minted.
	if old, err = c.read(key); err != nil || old.fresh() {
		return old.Entry, err
	}
	minted, err := c.mint(ctx, old, mint)
	if err != nil {
		return c.afterFailure(ctx, key, old, err)
	}
	if err := c.write(key, minted); err != nil {
		return minted, fmt.Errorf("%w: %w", ErrNotKept, err)
	}
	return minted, nil
}

// renewalTime is how long a caller waits for a new entry while the old one is
// valid.
const renewalTime = 10 * time.Second

func (c *Cache) mint(ctx context.Context, old record, mint func(ctx context.Context) (Entry, error)) (Entry, error) {
	if old.valid() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, renewalTime)
		defer cancel()
	}
	return mint(ctx)
}

func (c *Cache) afterFailure(ctx context.Context, key cache.Key, old record, err error) (Entry, error) {
	if c.Permanent != nil && c.Permanent(err) {
		_ = c.root.Remove(fileOf(key)) // it may not exist
		return Entry{}, err
	}
	// After a deadline the old entry is useful, after an interruption it is
	// not.
	if !errors.Is(ctx.Err(), context.Canceled) && old.valid() {
		return old.Entry, nil
	}
	return Entry{}, err
}

// replaceAfter is the age from which Invalidate removes an entry.
const replaceAfter = 10 * time.Second

// Invalidate removes the entry, because a service has refused the credential
// although it should still be valid. An entry that is younger than ten seconds
// stays: a service that refuses everything must not cause an exchange for every
// request.
func (c *Cache) Invalidate(key cache.Key) error {
	r, err := c.read(key)
	if err != nil || time.Since(r.Minted) < replaceAfter {
		return err
	}
	if err := c.root.Remove(fileOf(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// lock lets one process at a time mint the key. Several keys share each of 256
// locks, so that the files need not be removed. If wait is set, it waits for a
// third of the time that is left. Then the caller continues without the lock,
// because its holder hangs, perhaps with another key.
func (c *Cache) lock(ctx context.Context, key cache.Key, wait bool) (unlock func(), err error) {
	name := fmt.Sprintf("lock-%02x", key[0])
	if _, err := c.checkFile(name); err != nil {
		return nil, err
	}
	file, err := c.root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, c.unwritable(err)
	}
	if err = filelock.TryLock(file); wait && errors.Is(err, filelock.ErrLocked) {
		waiting, cancel := context.WithTimeout(ctx, patience(ctx))
		defer cancel()
		if err = filelock.Lock(waiting, file); waiting.Err() != nil {
			err = ctx.Err() // nil: continue without the lock
		}
	}
	if err != nil {
		_ = file.Close() // the first error counts
		return nil, err
	}
	return func() { _ = file.Close() }, nil // which unlocks
}

// maxPatience is the longest wait for a lock.
const maxPatience = 20 * time.Second

func patience(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(time.Until(deadline)/3, maxPatience)
	}
	return maxPatience
}
