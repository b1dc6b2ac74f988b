package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/workloadid/workloadid/cache"
)

// record is the content of a file.
type record struct {
	Entry
	Minted time.Time
}

const (
	softShare = 0.8
	maxMargin = time.Minute
)

// end returns when the entry may no longer be used: shortly before it expires,
// and at most an hour after it was minted.
func (r record) end() (life time.Duration, end time.Time) {
	life = min(r.Expires.Sub(r.Minted), cache.MaxDuration)
	return life, r.Minted.Add(life - min(maxMargin, life/10))
}

func (r record) valid() bool {
	now := time.Now()
	_, end := r.end()
	return !r.Minted.IsZero() && now.Before(end) && !now.Add(maxMargin).Before(r.Minted)
}

func (r record) fresh() bool {
	life, _ := r.end()
	return r.valid() && time.Now().Before(r.Minted.Add(time.Duration(softShare*float64(life))))
}

func fileOf(key cache.Key) string { return key.String() + ".json" }

// checkFile returns nil for a file that does not exist. The directory is
// closed, so that no other user replaces the file after the check.
func (c *Cache) checkFile(name string) (fs.FileInfo, error) {
	path := filepath.Join(c.dir, name)
	info, err := c.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, unreadable(path, err)
	}
	return info, check(path, info, false)
}

// read returns the zero record if there is none, or a damaged one.
func (c *Cache) read(key cache.Key) (r record, err error) {
	info, err := c.checkFile(fileOf(key))
	if err != nil || info == nil || info.Size() > 2*maxData {
		return record{}, err
	}
	content, err := c.root.ReadFile(fileOf(key))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return record{}, nil
	case err != nil:
		return record{}, unreadable(filepath.Join(c.dir, fileOf(key)), err)
	case json.Unmarshal(content, &r) != nil:
		return record{}, nil //nolint:nilerr // the next exchange replaces a damaged one
	}
	return r, nil
}

const tempPrefix = "new-"

// write replaces the file atomically.
func (c *Cache) write(key cache.Key, e Entry) error {
	if len(e.Data) > maxData {
		return fmt.Errorf("the credential has %d bytes, at most %d can be kept; switch the cache off", len(e.Data), maxData)
	}
	r := record{Entry: e, Minted: time.Now()}
	content, err := json.Marshal(r)
	if err != nil {
		return err
	}
	temp := tempPrefix + fileOf(key)
	err = c.writeFile(temp, content)
	if err == nil {
		// The file's time is when the entry becomes useless, so that a sweep
		// does not have to read it.
		_, end := r.end()
		err = c.root.Chtimes(temp, end, end)
	}
	if err == nil {
		err = c.root.Rename(temp, fileOf(key))
	}
	if err != nil {
		_ = c.root.Remove(temp) // the first error counts
		return c.unwritable(err)
	}
	return nil
}

func (c *Cache) writeFile(name string, content []byte) error {
	// O_EXCL fails if a process died and left its file.
	if err := c.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := c.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Close())
}

const (
	// maxNames bounds a sweep.
	maxNames = 4096
	// tempLife is how long a process may take to write a temporary file.
	tempLife = 10 * time.Minute
)

// ours matches the files that write makes. The directory may hold others.
var ours = regexp.MustCompile(`^(` + tempPrefix + `)?[0-9a-f]{64}\.json$`)

// sweep removes useless entries and the temporary files of processes that died,
// by the time that write has set. Files that another user could have written
// stay for read to refuse. It takes no lock: an entry that is replaced
// meanwhile is minted again at worst.
func (c *Cache) sweep() {
	dir, err := c.root.Open(".")
	if err != nil {
		return
	}
	defer dir.Close() //nolint:errcheck // nothing was written
	names, _ := dir.Readdirnames(maxNames)
	for _, name := range names {
		if !ours.MatchString(name) {
			continue
		}
		info, err := c.checkFile(name)
		if err != nil || info == nil {
			continue
		}
		end := info.ModTime()
		if strings.HasPrefix(name, tempPrefix) {
			end = end.Add(tempLife)
		}
		if time.Now().After(end) {
			_ = c.root.Remove(name) // another process may have done it
		}
	}
}
