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

// read returns the zero record if there is no usable one.
func (c *Cache) read(key cache.Key) (record, error) {
	content, err := c.readFile(fileOf(key))
	if err != nil || content == nil {
		return record{}, err
	}
	return decode(content, key), nil
}

// decode returns the zero record for damaged content.
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
	// Another file may have the name by now.
	opened, err := file.Stat()
	if err != nil {
		return nil, unreadable(path, err)
	}
	if err := check(path, opened, false); err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(file, 2*maxData))
	if err != nil {
		return nil, unreadable(path, err)
	}
	return content, nil
}

const tempPrefix = "new-"

// write replaces the file atomically.
func (c *Cache) write(key cache.Key, e Entry) error {
	if len(e.Data) > maxData {
		return fmt.Errorf("the credential has %d bytes, at most %d can be kept; switch the cache off", len(e.Data), maxData)
	}
	r := record{Entry: e, Minted: c.now().Round(0)}
	r.Expires = r.Expires.Round(0)
	r.Sum = r.sum(key)
	content, err := json.Marshal(r)
	if err != nil {
		return err
	}
	// A process whose wait for the lock timed out may write it too. The sum detects a mix.
	temp := tempPrefix + fileOf(key)
	if err := c.writeFile(temp, content); err != nil {
		_ = c.root.Remove(temp) // the first error counts
		return c.unwritable(err)
	}
	// The file's time is when the entry becomes useless, so that a sweep does not have to read it.
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
	// O_EXCL fails if a process died and left its file.
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
