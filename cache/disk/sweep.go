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
	// sweepEvery is how often one Cache looks for what is of no use any more.
	sweepEvery = time.Minute
	// maxNames and maxLooks bound the work of that: names that are read, and files that are looked at.
	maxNames, maxLooks = 4096, 256
	// tempLife is how long a temporary file can belong to somebody who is writing it.
	tempLife = 10 * time.Minute
)

// keyOf knows the names of our files: a key in hexadecimal.
func keyOf(name string) (key cache.Key, temp, ok bool) {
	name, temp = strings.CutPrefix(name, tempPrefix)
	text, ok := strings.CutSuffix(name, ".json")
	if !ok || len(text) != 2*len(key) || strings.ToLower(text) != text {
		return key, temp, false
	}
	_, err := hex.Decode(key[:], []byte(text))
	return key, temp, err == nil
}

// sweep removes entries that may no longer be used, and what processes that died have left. Files of other names are
// somebody else's: the directory may be one that is used for more. In a directory of many files it begins anywhere, so that
// all have their turn.
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

// useless reports whether a file of ours can go, by its time: write has set that to the end of the entry. What somebody else
// could have written is left for read to refuse.
func (c *Cache) useless(name string) bool {
	info, err := c.root.Lstat(name)
	if err != nil || check(name, info, false) != nil {
		return false
	}
	end := info.ModTime()
	if strings.HasPrefix(name, tempPrefix) {
		end = end.Add(tempLife)
	}
	// No entry ends later than this, whatever has become of its time.
	return c.now().After(end) || end.Sub(c.now()) > cache.MaxDuration+tempLife
}

// drop removes the file unless somebody is just replacing it.
func (c *Cache) drop(ctx context.Context, name string) {
	key, _, _ := keyOf(name)
	unlock, err := c.lock(ctx, key, false)
	if err != nil {
		return
	}
	defer unlock()
	if c.useless(name) {
		_ = c.root.Remove(name) // somebody else may have
	}
}
