//go:build unix

package disk_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/workloadid/workloadid/cache/disk"
)

// A plugin runs twice. The second run finds the credential of the first.
func Example() {
	cacheDir, err := os.MkdirTemp("", "plugin-") // a program takes os.UserCacheDir
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(cacheDir)

	run := func() {
		store, err := disk.Open(filepath.Join(cacheDir, "myplugin"))
		if err != nil {
			fmt.Println(err)
			return
		}
		defer store.Close()
		key := sha256.Sum256([]byte("role=reader\n")) // everything that shapes the credential
		entry, err := store.GetOrMint(context.Background(), key, func(context.Context) (disk.Entry, error) {
			fmt.Println("exchange")
			return disk.Entry{Data: []byte("credential"), Expires: time.Now().Add(time.Hour)}, nil
		})
		fmt.Println(string(entry.Data), err)
	}
	run()
	run()
	// Output:
	// exchange
	// credential <nil>
	// credential <nil>
}
