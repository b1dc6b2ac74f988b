package bootstrap_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/workloadid/workloadid/bootstrap"
)

// The cluster moves to another server; the watcher follows, by way of another
// address when the first one is gone.
func TestWatchFollowsTheCluster(t *testing.T) {
	authority := newCA(t)
	var now atomic.Pointer[map[string]string]
	handler := func(w http.ResponseWriter, r *http.Request) { configMap(*now.Load())(w, r) }
	first, second := authority.server(t, handler), authority.server(t, handler)
	names := func(server string) *map[string]string {
		content, err := (&bootstrap.ClusterInfo{Server: server, CAData: authority.pem}).Encode()
		if err != nil {
			t.Fatal(err)
		}
		return &map[string]string{"kubeconfig": string(content)}
	}
	now.Store(names(first.URL))
	file := filepath.Join(t.TempDir(), "info.yaml")
	ctx, cancel := context.WithCancel(t.Context())
	changed := make(chan *bootstrap.ClusterInfo, 10)
	failed := make(chan error, 1000)
	w := &bootstrap.Watch{Info: &bootstrap.ClusterInfo{Server: first.URL, CAData: authority.pem},
		Addresses: []string{second.URL}, File: file,
		Interval: time.Millisecond, Changed: func(i *bootstrap.ClusterInfo) { changed <- i }, Failed: func(err error) {
			select {
			case failed <- err:
			default:
			}
		}}
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()

	first.Close() // the second address has the news
	now.Store(names(second.URL))
	if got := <-changed; got.Server != second.URL {
		t.Errorf("moved to %s", got.Server)
	}
	second.Close()
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "refresh cluster information") {
		t.Errorf("told %v", err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	saved, err := bootstrap.Load(t.Context(), file, nil)
	if err != nil || saved.Server != second.URL {
		t.Errorf("saved %+v, %v", saved, err)
	}
}

// A modified local copy cannot lead to another cluster, because its server must
// present a certificate of a trusted CA.
func TestWatchDoesNotTrustItsCopy(t *testing.T) {
	authority, foreign := newCA(t), newCA(t)
	evil := foreign.server(t, configMap(signedInfo(t, wellKnown, foreign.pem)))
	file := filepath.Join(t.TempDir(), "info.yaml")
	if err := (&bootstrap.ClusterInfo{Server: evil.URL, CAData: foreign.pem}).Save(file); err != nil {
		t.Fatal(err)
	}
	down := authority.server(t, http.NotFound)
	ctx, cancel := context.WithCancel(t.Context())
	w := &bootstrap.Watch{Info: &bootstrap.ClusterInfo{Server: down.URL, CAData: authority.pem}, File: file,
		Interval: time.Millisecond,
		Changed:  func(i *bootstrap.ClusterInfo) { t.Errorf("went over to %s", i.Server); cancel() },
		Failed: func(err error) {
			if !strings.Contains(err.Error(), "certificate") {
				t.Errorf("told %v", err)
			}
			cancel()
		}}
	if err := w.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := os.Chmod(file, 0o666); err != nil { //nolint:gosec // that is the point
		t.Fatal(err)
	}
	if err := w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "written by others") {
		t.Errorf("a copy that others can write: %v", err)
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("users: [{name: u}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "it holds a user") {
		t.Errorf("a copy with credentials: %v", err)
	}
}

func TestWatchThatCannotBegin(t *testing.T) {
	for want, w := range map[string]*bootstrap.Watch{
		"to begin with":      {},
		"no PEM certificate": {Info: &bootstrap.ClusterInfo{Server: "https://127.0.0.1:1", CAData: []byte("garbage")}},
		`"http://a"`:         {Info: &bootstrap.ClusterInfo{Server: "http://a"}},
		`"http://b"`:         {Info: &bootstrap.ClusterInfo{Server: "https://127.0.0.1:1"}, Addresses: []string{"http://b"}},
	} {
		if err := w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// A local copy that could not be written is tried again, also when nothing
// changes any more.
func TestWatchSavesLater(t *testing.T) {
	authority := newCA(t)
	folder := filepath.Join(t.TempDir(), "later")
	file := filepath.Join(folder, "info.yaml")
	ctx, cancel := context.WithCancel(t.Context())
	var looks atomic.Int64
	server := authority.server(t, func(w http.ResponseWriter, r *http.Request) {
		if looks.Add(1) == 3 {
			cancel()
		}
		configMap(signed(t, wellKnown, &bootstrap.ClusterInfo{Server: "https://" + r.Host + "/", CAData: authority.pem}))(w,
			r)
	})
	changes, failures := 0, 0
	w := &bootstrap.Watch{Info: &bootstrap.ClusterInfo{Server: server.URL, CAData: authority.pem}, File: file,
		Interval: time.Millisecond,
		Changed:  func(*bootstrap.ClusterInfo) { changes++ },
		Failed: func(err error) {
			failures++
			if errMake := os.Mkdir(folder, 0o700); errMake != nil || !strings.Contains(err.Error(), "save cluster information") {
				t.Errorf("told %v; %v", err, errMake)
			}
		}}
	if err := w.Run(ctx); !errors.Is(err, context.Canceled) || changes != 1 || failures != 1 {
		t.Errorf("%d changes, %d failures, %v", changes, failures, err)
	}
	if saved, err := bootstrap.Load(t.Context(), file, nil); err != nil || saved.Server != server.URL+"/" {
		t.Errorf("saved %+v, %v", saved, err)
	}
}
