package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A credential of a ServiceAccount whose token is in hand, as other programs
// read it. Its secret is in the cache and nowhere else in the home directory.
func TestToken(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	out := w.mustWid(t, "", append([]string{"token", "--provider=aws", "-o=env", "--reveal"}, w.inHand(t)...)...)
	_, rest, _ := strings.Cut(out, "AWS_SECRET_ACCESS_KEY='")
	secret, _, _ := strings.Cut(rest, "'")
	_, rest, _ = strings.Cut(out, "AWS_ACCESS_KEY_ID='")
	id, _, _ := strings.Cut(rest, "'")
	if got, ok := w.cloud.AWS().Identity(id); !ok || got.RoleARN != role("tenant-a") || len(secret) < 20 {
		t.Fatalf("the keys are of %+v, want the role of tenant A", got)
	}
	err := filepath.WalkDir(w.home, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || strings.HasPrefix(path, filepath.Join(w.home, ".cache", "workloadid")) {
			return err
		}
		content, err := os.ReadFile(path)
		if strings.Contains(string(content), secret) {
			t.Errorf("%s holds the secret", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if again := w.mustWid(t, "", append([]string{"token", "--provider=aws", "-o=env", "--reveal"},
		w.inHand(t)...)...); strings.Contains(again, secret) {
		t.Error("another token gets the credential of the first one")
	}
}
