package bootstrap_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/bootstrap"
)

func TestLoadRefreshSave(t *testing.T) {
	authority := newCA(t)
	moved := signedInfo(t, wellKnown, authority.pem)
	server := authority.server(t, configMap(moved))
	info := &bootstrap.ClusterInfo{Server: server.URL, CAData: authority.pem}
	path := filepath.Join(t.TempDir(), "cluster-info.yaml")
	if err := info.Save(path); err != nil {
		t.Fatal(err)
	}
	if stat, err := os.Stat(path); err != nil || stat.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", stat.Mode(), err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, load := range map[string]func() (*bootstrap.ClusterInfo, error){
		"file": func() (*bootstrap.ClusterInfo, error) { return bootstrap.Load(t.Context(), path, nil) },
		"stdin": func() (*bootstrap.ClusterInfo, error) {
			return bootstrap.Load(t.Context(), "-", strings.NewReader(string(content)))
		},
	} {
		loaded, err := load()
		if err != nil || loaded.Server != server.URL {
			t.Fatalf("%s: %+v, %v", name, loaded, err)
		}
		if fresh, err := loaded.Refresh(t.Context()); err != nil || fresh.Server != "https://10.0.0.1:6443" {
			t.Errorf("%s: refreshed to %+v, %v", name, fresh, err)
		}
	}
	if _, err := (&bootstrap.ClusterInfo{Server: server.URL, CAData: newCA(t).pem}).Refresh(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "certificate") {
		t.Errorf("refreshing from an impostor: %v", err)
	}
	for source, want := range map[string]string{
		"http://127.0.0.1:1/x": "only https", "file:///etc/passwd": "only https", "/nonexistent": "no such file",
		"-":                                 "no standard input",
		server.URL + "/x?sig=hunter2":       "certificate",
		"https://user:hunter2@127.0.0.1:1/": "must not hold a user name or a password",
		"https://user:hunter2 @a":           "not a URL",
		t.TempDir():                         "no regular file",
	} {
		if _, err := bootstrap.Load(t.Context(), source, nil); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", source, err)
		}
	}
}

// Nothing waits longer than the context, or at all for what cannot be.
func TestLoadDoesNotHang(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	never, end := io.Pipe()
	defer end.Close() //nolint:errcheck // ends the read that was left
	reading := readerFunc(func(p []byte) (int, error) { cancel(); return never.Read(p) })
	if _, err := bootstrap.Load(ctx, "-", reading); !errors.Is(err, context.Canceled) {
		t.Errorf("standard input that does not end: %v", err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestSaveNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing", "info.yaml")
	err := (&bootstrap.ClusterInfo{Server: "https://a"}).Save(path)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) ||
		strings.Contains(err.Error(), ".info.yaml-") {
		t.Errorf("got %v", err)
	}
}
