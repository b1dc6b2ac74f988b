package issuer_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/issuer"
)

func removeKey(t *testing.T, p *issuer.Publisher, id string) issuer.Result {
	t.Helper()
	result, err := p.RemoveKey(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestRemoveKey(t *testing.T) {
	leaked, other := es256(t, "leaked"), es256(t, "other")
	published := func(t *testing.T) (*apiServer, *memory, *issuer.Publisher) {
		server, store := newAPIServer(leaked, other), newMemory()
		p := newPublisher(server, store)
		mustPublish(t, p)
		return server, store, p
	}
	t.Run("stays out while the API server shows it", func(t *testing.T) {
		_, store, p := published(t)
		if got := removeKey(t, p, "leaked"); !slices.Equal(got.Removed, []string{"leaked"}) {
			t.Errorf("removed %q", got.Removed)
		}
		if got := mustPublish(t, p); got.Written != nil || !slices.Equal(store.published(t), []string{"other"}) {
			t.Errorf("written %q, published %q", got.Written, store.published(t))
		}
	})
	t.Run("stays out under another ID", func(t *testing.T) {
		server, store, p := published(t)
		removeKey(t, p, "leaked")
		alias := leaked
		alias.KeyID = "alias"
		server.show(alias, other)
		mustPublish(t, p)
		store.expect(t, "other")
	})
	t.Run("another key under its ID stays out, and the other keys are published", func(t *testing.T) {
		server, store, p := published(t)
		removeKey(t, p, "leaked")
		server.show(rs256(t, "leaked", 2048), other, es256(t, "third"))
		warnings := mustPublish(t, p).Warnings
		if last := warnings[len(warnings)-1]; !strings.Contains(last, `were removed and stay unpublished: ["leaked"]`) {
			t.Errorf("warnings %q", warnings)
		}
		store.expect(t, "other", "third")
	})
	t.Run("needs no API server", func(t *testing.T) {
		server, store, p := published(t)
		server.answer(http.StatusForbidden, nil)
		removeKey(t, p, "leaked")
		store.expect(t, "other")
	})
	t.Run("before the first Publish", func(t *testing.T) {
		store := newMemory()
		removeKey(t, newPublisher(newAPIServer(leaked, other), store), "leaked")
		store.expect(t, "other")
	})
	t.Run("an unknown key is an error", func(t *testing.T) {
		_, store, p := published(t)
		store.takeWrites()
		if _, err := p.RemoveKey(t.Context(), "Leaked"); err == nil || !strings.Contains(err.Error(), `"Leaked"`) ||
			store.takeWrites() != nil || !errors.Is(err, provider.ErrMisconfigured) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("a publisher with an old record does not bring it back", func(t *testing.T) {
		_, store, p := published(t)
		record, version, err := store.Read(t.Context(), issuer.RecordFile)
		if err != nil {
			t.Fatal(err)
		}
		removeKey(t, p, "leaked")
		stale := 2
		store.onRead = func(path string, content []byte, v string, err error) ([]byte, string, error) {
			if path == issuer.RecordFile && stale > 0 {
				stale--
				return record, version, nil
			}
			return content, v, err
		}
		mustPublish(t, p)
		if got := store.published(t); !slices.Equal(got, []string{"other"}) || stale > 0 {
			t.Errorf("published %q", got)
		}
	})
}

// RemoveKey waits fifteen seconds for an API server that hangs.
func TestRemoveKeyWhileTheAPIServerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key, store := es256(t, "key"), newMemory()
		mustPublish(t, newPublisher(newAPIServer(key), store))
		hanging := newPublisher(newAPIServer(), store)
		hanging.Cluster.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		start := time.Now()
		if _, err := hanging.RemoveKey(t.Context(), "key"); err != nil || time.Since(start) > 15*time.Second {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
	})
}
