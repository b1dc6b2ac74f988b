package main

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"runtime"
)

// cacheDir returns where the programs of the module in dir are kept.
func cacheDir(dir string) (string, error) {
	root, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, file := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(dir, file)) //nolint:gosec // files of this module
		if err != nil {
			return "", err
		}
		h.Write(content)
	}
	h.Write([]byte(runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH))
	return filepath.Join(root, "workloadid", "kube", hex.EncodeToString(h.Sum(nil))[:16]), nil
}
