package issuer_test

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/workloadid/workloadid/issuer"
)

// publishUntil publishes every minute and returns the time after which the key
// left.
func publishUntil(t *testing.T, p *issuer.Publisher, store *memory, id string, most time.Duration) time.Duration {
	t.Helper()
	for start := time.Now(); ; time.Sleep(time.Minute) {
		mustPublish(t, p)
		if !slices.Contains(store.published(t), id) {
			return time.Since(start)
		}
		if time.Since(start) > most {
			t.Fatalf("key %q is still published after %s", id, time.Since(start))
		}
	}
}

// A rotation begins after the API server has replaced the key "old" by "new".
// Its publisher has published the first one.
type rotation struct {
	server       *apiServer
	store        *memory
	p            *issuer.Publisher
	older, newer jose.JSONWebKey
}

type rotations map[string]func(t *testing.T, r *rotation)

func (rows rotations) run(t *testing.T) {
	older, newer := es256(t, "old"), es256(t, "new")
	for name, run := range rows {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &rotation{server: newAPIServer(older, newer), store: newMemory(), older: older, newer: newer}
				r.p = newPublisher(r.server, r.store)
				mustPublish(t, r.p)
				r.server.show(newer)
				run(t, r)
			})
		})
	}
}

func TestRotation(t *testing.T) {
	rotations{
		"the old key leaves after the longest token": func(t *testing.T, r *rotation) {
			leaves := time.Now().Add(24 * time.Hour).UTC()
			if got := mustPublish(t, r.p).Leaving; len(got) != 1 || !got["old"].Equal(leaves) {
				t.Errorf("leaving %v, want old at %s", got, leaves)
			}
			r.store.takeWrites()
			if took := publishUntil(t, r.p, r.store, "old", 48*time.Hour); took != 24*time.Hour {
				t.Errorf("left after %s, want 24h", took)
			}
			if n := len(r.store.takeWrites()); n > 24*20+3 {
				t.Errorf("%d writes, want at most one in three minutes", n)
			}
			if got := mustPublish(t, r.p); len(got.Leaving) != 0 || got.Written != nil {
				t.Errorf("after it left: %+v", got)
			}
		},
		"MaxTokenLifetime decides": func(t *testing.T, r *rotation) {
			r.p.MaxTokenLifetime = 2 * time.Hour
			if took := publishUntil(t, r.p, r.store, "old", 48*time.Hour); took != 2*time.Hour {
				t.Errorf("left after %s, want 2h", took)
			}
		},
		"a look that shows the key begins anew": func(t *testing.T, r *rotation) {
			for start := time.Now(); time.Since(start) < 23*time.Hour; time.Sleep(time.Minute) {
				mustPublish(t, r.p)
			}
			r.server.show(r.newer, r.older) // one API server of several has it still
			if got := mustPublish(t, r.p).Leaving; len(got) != 0 {
				t.Errorf("leaving %v", got)
			}
			r.server.show(r.newer)
			if took := publishUntil(t, r.p, r.store, "old", 48*time.Hour); took != 24*time.Hour {
				t.Errorf("left after %s, want 24h", took)
			}
		},
	}.run(t)
}

func TestRotationOfSeveralPublishers(t *testing.T) {
	rotations{
		"a publisher without one follows the record": func(t *testing.T, r *rotation) {
			r.p.MaxTokenLifetime = 168 * time.Hour
			mustPublish(t, r.p)
			repair := newPublisher(r.server, r.store)
			for range 25 * 60 / 5 {
				time.Sleep(5 * time.Minute)
				mustPublish(t, repair)
			}
			if leaving := mustPublish(t, repair).Leaving; len(leaving) != 1 {
				t.Errorf("leaving after 25h of 168h: %v", leaving)
			}
		},
		"the longer of two lifetimes decides": func(t *testing.T, r *rotation) {
			shorter := newPublisher(r.server, r.store)
			r.p.MaxTokenLifetime, shorter.MaxTokenLifetime = 72*time.Hour, 2*time.Hour
			mustPublish(t, r.p)
			start := time.Now()
			for slices.Contains(r.store.published(t), "old") && time.Since(start) < 96*time.Hour {
				time.Sleep(time.Minute)
				mustPublish(t, shorter)
				mustPublish(t, r.p)
			}
			if took := time.Since(start); took != 72*time.Hour {
				t.Errorf("left after %s, want 72h", took)
			}
			if next := mustPublish(t, shorter); len(next.Leaving) != 0 ||
				!bytes.Contains(r.store.files[issuer.RecordFile], []byte(`"maxTokenLifetimeSeconds":7200`)) {
				t.Errorf("a shorter lifetime never counts: %s", r.store.files[issuer.RecordFile])
			}
		},
		"a look that other writers delay does not begin an absence in the past": func(t *testing.T, r *rotation) {
			second, seen := newPublisher(newAPIServer(r.older, r.newer), r.store), time.Time{}
			r.server.show(r.newer)
			r.store.onWrite = func(string) error {
				r.store.onWrite = nil
				time.Sleep(24 * time.Second)
				mustPublish(t, second) // another API server shows the key still
				seen = time.Now()
				return issuer.ErrChanged
			}
			if leaves := mustPublish(t, r.p).Leaving["old"]; leaves.Before(seen.Add(24 * time.Hour).Truncate(time.Second)) {
				t.Errorf("leaves %s early", seen.Add(24*time.Hour).Sub(leaves))
			}
		},
		"two publishers do not count double": func(t *testing.T, r *rotation) {
			second := newPublisher(r.server, r.store)
			start := time.Now()
			for slices.Contains(r.store.published(t), "old") && time.Since(start) < 48*time.Hour {
				mustPublish(t, r.p)
				time.Sleep(17 * time.Second)
				mustPublish(t, second)
				time.Sleep(43 * time.Second)
			}
			if took := time.Since(start); took < 24*time.Hour || took > 24*time.Hour+2*time.Minute {
				t.Errorf("left after %s, want 24h", took)
			}
		},
	}.run(t)
}

func TestLooksThatDoNotCount(t *testing.T) {
	rotations{
		"a gap over ten minutes does not count": func(t *testing.T, r *rotation) {
			mustPublish(t, r.p)
			time.Sleep(23 * time.Hour)
			if took := publishUntil(t, r.p, r.store, "old", 48*time.Hour); took != 24*time.Hour {
				t.Errorf("left after %s of looks, want 24h", took)
			}
		},
		"looks every eleven minutes never count": func(t *testing.T, r *rotation) {
			for range 500 {
				mustPublish(t, r.p)
				time.Sleep(11 * time.Minute)
			}
			if !slices.Contains(r.store.published(t), "old") {
				t.Error("the key left")
			}
		},
		"a failed look does not count": func(t *testing.T, r *rotation) {
			mustPublish(t, r.p)
			r.server.answer(http.StatusServiceUnavailable, nil)
			for range 60 * 25 {
				if _, err := r.p.Publish(t.Context()); err == nil {
					t.Fatal("no error")
				}
				time.Sleep(time.Minute)
			}
			if !slices.Contains(r.store.published(t), "old") {
				t.Error("the key left")
			}
		},
		"an empty answer is an error": func(t *testing.T, r *rotation) {
			r.server.show()
			if _, err := r.p.Publish(t.Context()); err == nil || len(r.store.published(t)) != 2 {
				t.Errorf("error %v, published %q", err, r.store.published(t))
			}
		},
	}.run(t)
}

func TestClockSkew(t *testing.T) {
	older, newer := es256(t, "old"), es256(t, "new")
	recordUntil := func(store *memory, until time.Time, seconds int) {
		record := fmt.Sprintf(`{"version":1,"issuer":%q,"keys":[{"key":%s,"absence":{"seconds":%d,"until":%q}},{"key":%s}]}`,
			issuerURL, mustJSON(older), seconds, until.UTC().Format(time.RFC3339), mustJSON(newer))
		store.put(issuer.RecordFile, []byte(record))
		store.put(issuer.KeysFile, marshalKeys(newer, older))
	}
	for name, tc := range map[string]struct {
		until time.Duration
		left  time.Duration
	}{
		"a record from a clock one minute ahead":       {time.Minute, 24*time.Hour - 1000*time.Second + time.Minute},
		"a record from a clock years ahead":            {5 * 365 * 24 * time.Hour, 24 * time.Hour},
		"a record from long ago keeps what it counted": {-30 * 24 * time.Hour, 24*time.Hour - 1000*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newMemory()
				recordUntil(store, time.Now().Add(tc.until), 1000)
				took := publishUntil(t, newPublisher(newAPIServer(newer), store), store, "old", 48*time.Hour)
				if took < tc.left || took > tc.left+time.Minute {
					t.Errorf("left after %s, want %s", took, tc.left)
				}
			})
		})
	}
}

func TestPublishedKeysWithoutARecordAreAdopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		older, newer := es256(t, "old"), es256(t, "new")
		store := newMemory()
		store.put(issuer.KeysFile, marshalKeys(older))
		p := newPublisher(newAPIServer(newer), store)
		if got := mustPublish(t, p); !slices.Equal(store.published(t), []string{"new", "old"}) || len(got.Leaving) != 1 {
			t.Fatalf("published %q, leaving %v", store.published(t), got.Leaving)
		}
		if took := publishUntil(t, p, store, "old", 48*time.Hour); took != 24*time.Hour {
			t.Errorf("left after %s, want 24h", took)
		}
	})
}
