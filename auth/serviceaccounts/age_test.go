package serviceaccounts_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata/fake"
	k8stesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/serviceaccounts"
)

// line is the connection to an API server: it can be cut, so that each request fails from then on.
type line struct {
	mu    sync.Mutex
	err   error
	watch *watch.FakeWatcher
}

func newLine(c *fake.FakeMetadataClient) *line {
	l := &line{}
	c.PrependReactor("list", "serviceaccounts", func(k8stesting.Action) (bool, k8sruntime.Object, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.err != nil, nil, l.err
	})
	c.PrependWatchReactor("serviceaccounts", func(k8stesting.Action) (bool, watch.Interface, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.err != nil {
			return true, nil, l.err
		}
		l.watch = watch.NewFake()
		return true, l.watch, nil
	})
	return l
}

func (l *line) set(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err = err; err != nil {
		l.watch.Stop()
	}
}

// During a long outage of the API server the memory is served for a limited time. Then the error names the reason.
func TestMaxAge(t *testing.T) {
	for name, tt := range map[string]struct {
		maxAge, serves time.Duration
		err            error
		reason         auth.Reason
		want           string
	}{
		"rights taken away": {0, time.Hour, forbidden, auth.ErrDenied, "verbs list and watch on serviceaccounts"},
		"outage":            {0, time.Hour, errors.New("no route to host"), auth.ErrUnavailable, "no route to host"},
		"as told":           {5 * time.Hour, 5 * time.Hour, forbidden, auth.ErrDenied, "verbs list and watch"},
		"for ever":          {-1, 50 * time.Hour, forbidden, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := fakeClient(metadataOf("tenant-a", "app", nil))
				l, r := newLine(c), newReader(t, c, serviceaccounts.Options{MaxAge: tt.maxAge})
				start(t, r)
				synctest.Wait()
				cut := time.Now()
				l.set(tt.err)
				time.Sleep(tt.serves - time.Second)
				if _, err := readFor(r); err != nil {
					t.Fatalf("during the outage: %v", err)
				}
				if err := r.Check(nil); err == nil || !strings.Contains(err.Error(), tt.err.Error()) {
					t.Errorf("the Reader counts as ready: %v", err)
				}
				if at := r.LastContact(); !at.Equal(cut) {
					t.Errorf("the last contact was at %s, not %s", at, cut)
				}
				time.Sleep(2 * time.Second)
				took, err := readFor(r)
				if tt.reason == "" {
					if err != nil {
						t.Error(err)
					}
					return
				}
				check(t, err, tt.reason, tt.want)
				if took != 0 {
					t.Errorf("it took %s", took)
				}
				l.set(nil)
				time.Sleep(2 * time.Minute) // the reflector's longest pause between two tries is one minute
				if _, err := readFor(r); err != nil || r.Check(nil) != nil {
					t.Errorf("after the outage: %v, %v", err, r.Check(nil))
				}
				l.set(tt.err)
				time.Sleep(time.Second)
				if _, err := readFor(r); err != nil {
					t.Errorf("in the next outage: %v", err)
				}
				time.Sleep(tt.serves)
				_, err = readFor(r)
				check(t, err, tt.reason, tt.want)
			})
		})
	}
}

// Nothing but signs of life, for hours: what is in memory is up to date.
func TestQuietWatch(t *testing.T) {
	for name, event := range map[string]watch.EventType{"bookmarks": watch.Bookmark, "changes": watch.Modified} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := fakeClient(metadataOf("tenant-a", "app", nil))
				l, r := newLine(c), newReader(t, c, serviceaccounts.Options{})
				start(t, r)
				synctest.Wait()
				for range 10 {
					time.Sleep(50 * time.Minute)
					l.watch.Action(event, metadataOf("tenant-a", "app", nil))
					synctest.Wait()
					if at := r.LastContact(); !at.Equal(time.Now()) {
						t.Errorf("the last contact was %s ago", time.Since(at))
					}
				}
				if _, err := readFor(r); err != nil || r.Check(nil) != nil {
					t.Errorf("%v, %v", err, r.Check(nil))
				}
				time.Sleep(time.Hour + time.Second)
				_, err := readFor(r)
				check(t, err, auth.ErrUnavailable, "has not been heard of for 1h")
				l.watch.Action(event, metadataOf("tenant-a", "app", nil))
				synctest.Wait()
				if _, err := readFor(r); err != nil {
					t.Errorf("after a sign of life: %v", err)
				}
			})
		})
	}
}

func TestOptions(t *testing.T) {
	for name, tt := range map[string]struct {
		options serviceaccounts.Options
		want    string
	}{
		"selector": {serviceaccounts.Options{LabelSelector: "!!bad"}, `LabelSelector "!!bad"`},
		"time-out": {serviceaccounts.Options{SyncTimeout: -1}, "SyncTimeout"},
		"age":      {serviceaccounts.Options{MaxAge: time.Minute}, "MaxAge of the reader of ServiceAccounts is 1m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := serviceaccounts.NewForClient(fakeClient(), tt.options); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v", err)
			}
		})
	}
	selected := metadataOf("tenant-a", "app", nil)
	selected.Labels = map[string]string{"shard": "1"}
	r := newReader(t, fakeClient(selected, metadataOf("tenant-a", "other", nil)), serviceaccounts.Options{LabelSelector: "shard=1"})
	start(t, r)
	get(t, r, "tenant-a", "app")
	if err := r.Get(t.Context(), client.ObjectKey{Namespace: "tenant-a", Name: "other"}, &corev1.ServiceAccount{}); !apierrors.IsNotFound(err) {
		t.Errorf("of another shard: %v", err)
	}
}
