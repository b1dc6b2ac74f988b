//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package disk

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/workloadid/workloadid/cache"
)

// The cache may be told to use a folder that holds more than its own files, which stay.
func TestOnlyOurFilesAreSwept(t *testing.T) {
	own := fileOf(cache.Key{1, 2, 0xab})
	for name, want := range map[string]bool{own: true, "new-" + own: true, "config.json": false, "application_default_credentials.json": false,
		own + ".json": false, "x" + own[1:]: false, own[2:]: false, "old-" + own: false, "new-new-" + own: false,
		fileOf(cache.Key{1, 2, 0xab})[:4] + "AB" + own[6:]: false} {
		if key, temp, ok := keyOf(name); ok != want || ok && (key != cache.Key{1, 2, 0xab} || temp != (name != own)) {
			t.Errorf("%q: %v, %t, %t", name, key, temp, ok)
		}
	}
}

// A name of ours has one spelling.
func FuzzNames(f *testing.F) {
	f.Add(fileOf(cache.Key{1}))
	f.Add(tempPrefix + fileOf(cache.Key{0xff}))
	f.Add("config.json")
	f.Fuzz(func(t *testing.T, name string) {
		key, temp, ok := keyOf(name)
		if ok && temp != (name == tempPrefix+fileOf(key)) || ok && !temp && name != fileOf(key) {
			t.Errorf("%q is %s, %t", name, key, temp)
		}
	})
}

// left are the entries and temporary files in a directory.
func left(t *testing.T, dir string) int {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// What may no longer be used goes with the next call, though that only reads. What is not ours stays, however old it is.
func TestSweepOnRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kept")
	c, clock := open(t, dir)
	long, short := &service{clock: clock, life: 12 * time.Hour}, &service{clock: clock, life: 15 * time.Minute}
	get(t, c, cache.Key{99}, long)
	for n := range byte(20) {
		get(t, c, cache.Key{n}, short)
	}
	hour := time.Now().Add(-time.Hour)
	keep := []string{"config.json", "readme.txt", "x" + fileOf(cache.Key{200})[1:], "open"}
	for _, name := range append(keep, tempPrefix+fileOf(cache.Key{201})) {
		if name == "open" { // to others: read refuses it
			name = fileOf(cache.Key{202})
		}
		file := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Chtimes(file, hour, hour)); err != nil {
			t.Fatal(err)
		}
	}
	young := filepath.Join(dir, tempPrefix+fileOf(cache.Key{203}))
	if err := errors.Join(os.Chmod(filepath.Join(dir, fileOf(cache.Key{202})), 0o644), os.WriteFile(young, nil, 0o600),
		os.Chtimes(young, clock.now().Add(10*time.Minute), clock.now().Add(10*time.Minute)),
		os.Mkdir(filepath.Join(dir, fileOf(cache.Key{204})), 0o700), os.Symlink("nowhere", filepath.Join(dir, fileOf(cache.Key{205})))); err != nil {
		t.Fatal(err)
	}
	clock.pass(14*time.Minute + time.Second)
	if got := get(t, c, cache.Key{99}, long); got != "credential 1" || long.count.Load() != 1 {
		t.Errorf("%s after %d exchanges", got, long.count.Load())
	}
	// Entry 99, two foreign files in JSON, one open to others, one being written, a directory, a link.
	if n := left(t, dir); n != 7 {
		names, _ := filepath.Glob(filepath.Join(dir, "*.json"))
		t.Errorf("%d files are left: %q", n, names)
	}
	clock.pass(46 * time.Minute)
	if _, err := c.GetOrMint(t.Context(), cache.Key{98}, (&service{clock: clock, err: errors.New("away")}).mint); err == nil {
		t.Error("minted")
	}
	if _, err := os.Stat(filepath.Join(dir, fileOf(cache.Key{99}))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was used for an hour is still there: %v", err)
	}
}

// An entry that has ended goes before its successor is minted, which may fail.
func TestAnEndedEntryGoesBeforeTheExchange(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kept")
	c, clock := open(t, dir)
	s := &service{clock: clock, life: time.Minute}
	get(t, c, cache.Key{1}, s)
	clock.pass(55 * time.Second) // less than until the next sweep
	s.err = errors.New("away")
	if _, err := c.GetOrMint(t.Context(), cache.Key{1}, s.mint); err == nil || left(t, dir) != 0 {
		t.Errorf("%v, %d files are left", err, left(t, dir))
	}
}

// One call does little of a large directory; all of them together clear it.
func TestSweepIsBounded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kept")
	c, clock := open(t, dir)
	const many = 2*maxLooks + 50
	old := time.Now().Add(-time.Hour)
	for n := range many {
		file := filepath.Join(dir, fileOf(cache.Key{byte(n), byte(n >> 8), 1}))
		if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Chtimes(file, old, old)); err != nil {
			t.Fatal(err)
		}
	}
	s := &service{clock: clock, life: time.Hour}
	get(t, c, cache.Key{1}, s)
	if n := left(t, dir); n != many-maxLooks+1 {
		t.Errorf("%d files are left", n)
	}
	for range 2 {
		clock.pass(2 * sweepEvery)
		get(t, c, cache.Key{1}, s)
	}
	if n := left(t, dir); n != 1 {
		t.Errorf("%d files are left in the end", n)
	}
}

// A sweep does not disturb a process that is replacing an entry.
func TestSweepLeavesWhatIsBeingReplaced(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kept")
	c, clock := open(t, dir)
	get(t, c, cache.Key{1}, &service{clock: clock, life: time.Minute})
	clock.pass(time.Hour)
	unlock, err := c.lock(t.Context(), cache.Key{1}, true)
	if err != nil {
		t.Fatal(err)
	}
	other, _ := open(t, dir)
	other.now = clock.now
	get(t, other, cache.Key{2}, &service{clock: clock, life: time.Hour})
	if n := left(t, dir); n != 2 {
		t.Errorf("%d files are left", n)
	}
	unlock()
}
