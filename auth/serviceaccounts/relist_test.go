package serviceaccounts_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/serviceaccounts"
)

// halting is an API server that forgets its state and then never completes a list.
type halting struct {
	mu    sync.Mutex
	halts bool
	watch *watch.FakeWatcher
	asked int // for a stream of everything, while it halts
}

func newHalting(c *fake.FakeMetadataClient) *halting {
	h := &halting{}
	c.PrependReactor("list", "serviceaccounts", func(k8stesting.Action) (bool, k8sruntime.Object, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.halts, nil, errors.New("unexpected EOF")
	})
	c.PrependWatchReactor("serviceaccounts", func(a k8stesting.Action) (bool, watch.Interface, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		action, ok := a.(k8stesting.WatchActionImpl)
		if everything := ok && action.ListOptions.SendInitialEvents != nil; everything && !h.halts {
			return true, nil, apierrors.NewBadRequest("sendInitialEvents is forbidden")
		}
		h.watch = watch.NewFake()
		if h.halts {
			h.asked++
			time.AfterFunc(5*time.Minute, h.watch.Stop) // as an API server does with each watch
		}
		return true, h.watch, nil
	})
	return h
}

func (h *halting) halt() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.halts = true
	h.watch.Error(&apierrors.NewResourceExpired("too old resource version").ErrStatus)
}

func (h *halting) streams() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.asked
}

// An answer that begins says nothing of what there is now: what was read before it gets old all the same.
func TestStreamWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fakeClient(metadataOf("tenant-a", "app", nil))
		h, r := newHalting(c), newReader(t, struct{ metadata.Interface }{c}, serviceaccounts.Options{})
		start(t, r)
		synctest.Wait()
		last := r.LastContact()
		h.halt()
		time.Sleep(50 * time.Minute)
		if _, err := readFor(r); err != nil {
			t.Fatalf("within an hour: %v", err)
		}
		time.Sleep(11 * time.Minute)
		if n := h.streams(); n < 5 {
			t.Fatalf("the stream was opened %d times only", n)
		}
		if at := r.LastContact(); !at.Equal(last) {
			t.Errorf("the API server counts as heard of %s after it has last said anything", at.Sub(last))
		}
		_, err := readFor(r)
		check(t, err, auth.ErrUnavailable)
	})
}
