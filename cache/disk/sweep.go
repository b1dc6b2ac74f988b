package disk

import (
	"context"
	"encoding/hex"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/workloadid/workloadid/cache"
)

const (
	// sweepEvery is how often one Cache sweeps.
	sweepEvery = time.Minute
	// maxNames and maxLooks bound a sweep: the names that it reads, and the files that it checks.
	maxNames, maxLooks = 4096, 256
	// tempLife is how long a process may take to write a temporary file.
	tempLife = 10 * time.Minute
)

// keyOf parses the name of a file of this package: a key in hexadecimal.
func keyOf(name string) (key cache.Key, temp, ok bool) {
	name, temp = strings.CutPrefix(name, tempPrefix)
	text, ok := strings.CutSuffix(name, ".json")
	if !ok || len(text) != 2*len(key) || strings.ToLower(text) != text {
		return key, temp, false
	}
	_, err := hex.Decode(key[:], []byte(text))
	return key, temp, err == nil
}

// sweep removes useless entries and the temporary files of processes that died. It leaves files of other names alone. In a
// directory of many files it starts at a random one.
func (c *Cache) sweep(ctx context.Context) {
	c.swept.Store(c.now().UnixNano())
	dir, err := c.root.Open(".")
	if err != nil {
		return
	}
	defer dir.Close() //nolint:errcheck // nothing was written
	all, _ := dir.Readdirnames(maxNames)
	var names []string
	for _, name := range all {
		if _, _, ok := keyOf(name); ok {
			names = append(names, name)
		}
	}
	if len(names) > maxLooks {
		start := rand.IntN(len(names)) //nolint:gosec // no secret
		names = append(names[start:], names[:start]...)[:maxLooks]
	}
	for _, name := range names {
		if c.useless(name) {
			c.drop(ctx, name)
		}
	}
}

// useless reports whether a file can be removed, by the time that write has set. Files that another user could have written stay
// for read to refuse.
func (c *Cache) useless(name string) bool {
	info, err := c.root.Lstat(name)
	if err != nil || check(name, info, false) != nil {
		return false
	}
	end := info.ModTime()
	if strings.HasPrefix(name, tempPrefix) {
		end = end.Add(tempLife)
	}
	// A later time is not one that write has set.
	return c.now().After(end) || end.Sub(c.now()) > cache.MaxDuration+tempLife
}

// drop removes the file unless a process is replacing it.
func (c *Cache) drop(ctx context.Context, name string) {
	key, _, _ := keyOf(name)
	unlock, err := c.lock(ctx, key, false)
	if err != nil {
		return
	}
	defer unlock()
	if c.useless(name) {
		_ = c.root.Remove(name) // another process may have done it
	}
}
