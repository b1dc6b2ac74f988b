package main

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// cacheDir returns where the programs are kept whose versions modFile and its
// sums pin.
func cacheDir(modFile string) (string, error) {
	root, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, file := range []string{modFile, strings.TrimSuffix(modFile, ".mod") + ".sum"} {
		content, err := os.ReadFile(file) //nolint:gosec // files of this module
		if err != nil {
			return "", err
		}
		h.Write(content)
	}
	h.Write([]byte(runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH))
	return filepath.Join(root, "workloadid", "kube", hex.EncodeToString(h.Sum(nil))[:16]), nil
}
