package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/workloadid/workloadid/cache"
)

func fileOf(key cache.Key) string { return key.String() + ".json" }

// read returns the zero record if there is none, or none that can be used.
func (c *Cache) read(key cache.Key) (record, error) {
	content, err := c.readFile(fileOf(key))
	if err != nil || content == nil {
		return record{}, err
	}
	return decode(content, key), nil
}

// decode takes what is damaged for nothing.
func decode(content []byte, key cache.Key) (r record) {
	if json.Unmarshal(content, &r) != nil || string(r.Sum) != string(r.sum(key)) {
		return record{}
	}
	return r
}

func (c *Cache) readFile(name string) ([]byte, error) {
	path := filepath.Join(c.dir, name)
	named, err := c.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, unreadable(path, err)
	}
	if err := check(path, named, false); err != nil {
		return nil, err
	}
	file, err := c.root.Open(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, unreadable(path, err)
	}
	defer file.Close() //nolint:errcheck // nothing was written
	// The name may stand for another file by now: a new one of ours, or not.
	opened, err := file.Stat()
	if err != nil {
		return nil, unreadable(path, err)
	}
	if err := check(path, opened, false); err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(file, 2*MaxData))
	if err != nil {
		return nil, unreadable(path, err)
	}
	return content, nil
}

const tempPrefix = "new-"

// write replaces the file at once: nobody sees half of it.
func (c *Cache) write(key cache.Key, e Entry) error {
	if len(e.Data) > MaxData {
		return fmt.Errorf("the credential has %d bytes, at most %d can be kept; switch the cache off", len(e.Data), MaxData)
	}
	r := record{Entry: e, Minted: c.now().Round(0)}
	r.Expires = r.Expires.Round(0)
	r.Sum = r.sum(key)
	content, err := json.Marshal(r)
	if err != nil {
		return err
	}
	// Whoever writes it holds the lock, or has waited for that in vain: if two do, the sum shows what has become of it.
	temp := tempPrefix + fileOf(key)
	if err := c.writeFile(temp, content); err != nil {
		_ = c.root.Remove(temp) // the first error counts
		return c.unwritable(err)
	}
	// The time of the file is the entry's end, so that nobody has to read it to see that it is of no use any more.
	_, end := r.end()
	if err := c.root.Chtimes(temp, end, end); err != nil {
		_ = c.root.Remove(temp) // the first error counts
		return c.unwritable(err)
	}
	if err := c.root.Rename(temp, fileOf(key)); err != nil {
		return c.unwritable(err)
	}
	return nil
}

func (c *Cache) writeFile(name string, content []byte) error {
	// What a process that died has left is in the way of O_EXCL.
	if err := c.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := c.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	return err
}
