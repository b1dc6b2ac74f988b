package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// watched is an API server that the test plays. Objects are written as "name@version".
type watched struct {
	pages    [][]string // what a list answers
	watches  chan *watch.FakeWatcher
	versions []string // from which it was watched
	seen     []string
}

func object(s string) metav1.PartialObjectMetadata {
	var o metav1.PartialObjectMetadata
	_, _ = fmt.Sscanf(s, "%1s@%s", &o.Name, &o.ResourceVersion)
	return o
}

func (w *watched) client() client.WithWatch {
	return interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			var options client.ListOptions
			options.ApplyOptions(opts)
			answer, ok := list.(*metav1.PartialObjectMetadataList)
			if !ok || options.Limit == 0 {
				return errors.New("not a page of metadata")
			}
			n := 0
			if options.Continue != "" {
				n = 1
			}
			for _, s := range w.pages[n] {
				answer.Items = append(answer.Items, object(s))
			}
			if answer.ResourceVersion = "5"; n+1 < len(w.pages) {
				answer.Continue = "more"
			}
			return nil
		},
		Watch: func(_ context.Context, _ client.WithWatch, _ client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
			var options client.ListOptions
			options.ApplyOptions(opts)
			w.versions = append(w.versions, options.Raw.ResourceVersion)
			return <-w.watches, nil
		},
	})
}

func (w *watched) follower() *follower {
	return &follower{kind: corev1.SchemeGroupVersion.WithKind("SecretList"), changed: func(o *metav1.PartialObjectMetadata) { w.seen = append(w.seen, o.Name) }}
}

// took returns what changed since the last call, in order of name.
func (w *watched) took() []string {
	synctest.Wait()
	seen := slices.Sorted(slices.Values(w.seen))
	w.seen = nil
	return seen
}

// A watch that is cut off goes on where it ended. After a failure, the list tells what was missed.
func TestFollowerMissesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &watched{pages: [][]string{{"a@1"}, {"b@1"}}, watches: make(chan *watch.FakeWatcher, 1)}
		f := w.follower()
		ended := make(chan error, 1)
		run := func() *watch.FakeWatcher {
			first := watch.NewFake()
			w.watches <- first
			go func() { ended <- f.run(t.Context(), w.client()) }()
			return first
		}
		first := run()
		if got := w.took(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("listed %q", got)
		}
		b, a, c, mark, gone := object("b@6"), object("a@7"), object("c@8"), object(" @9"), apierrors.NewResourceExpired("too old")
		mark.Name = ""
		mark.ResourceVersion = "9"
		first.Modify(&b)
		first.Delete(&a)
		first.Add(&c)
		first.Action(watch.Bookmark, &mark)
		if got := w.took(); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("watched %q", got)
		}
		second := watch.NewFake()
		w.watches <- second
		first.Stop()
		second.Error(&gone.ErrStatus)
		if err := <-ended; !apierrors.IsResourceExpired(err) || !slices.Equal(w.versions, []string{"5", "9"}) {
			t.Errorf("watched from %q, then %v", w.versions, err)
		}
		w.pages = [][]string{{"b@6", "d@1"}}
		third := run()
		if got := w.took(); !slices.Equal(got, []string{"c", "d"}) {
			t.Errorf("missed meanwhile: %q", got)
		}
		third.Stop()
		if err := <-ended; err == nil {
			t.Error("a watch that ends at once is tried again at once")
		}
	})
}

func TestKeepBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var at []time.Duration
		start, wake := time.Now(), make(chan struct{})
		keep(ctx, func() (<-chan struct{}, error) {
			at = append(at, time.Since(start))
			switch len(at) {
			case 8:
				close(wake)
				return wake, errors.New("waits")
			case 9:
				time.Sleep(maxWait + 1)
			case 11:
				cancel()
			}
			return nil, errors.New("fails")
		})
		s := time.Second
		want := []time.Duration{0, s, 3 * s, 7 * s, 15 * s, 31 * s, 61 * s, 91 * s, 91 * s, 91*s + maxWait + 1 + s, 91*s + maxWait + 1 + 3*s}
		if !slices.Equal(at, want) {
			t.Errorf("tried at %v, want %v", at, want)
		}
	})
}

// Add-ons use the hub again as soon as the agent has another credential.
func TestHubSessionsTellOfChanges(t *testing.T) {
	var s hubSessions
	first := &hubSession{made: map[string][]byte{"a": []byte("1")}}
	_, replaced := s.get()
	s.set(nil)
	if replaced.Err() != nil {
		t.Error("nothing was replaced by nothing")
	}
	s.set(first)
	if replaced.Err() == nil {
		t.Error("no word of the first access")
	}
	current, replaced := s.get()
	s.set(&hubSession{made: map[string][]byte{"a": []byte("1")}})
	if current != first || replaced.Err() != nil {
		t.Error("an access that is made of the same replaces another one")
	}
	s.set(&hubSession{made: map[string][]byte{"a": []byte("2")}})
	if replaced.Err() == nil {
		t.Error("no word of the second access")
	}
	_, replaced = s.get()
	s.set(nil)
	if current, _ := s.get(); current != nil || replaced.Err() == nil {
		t.Error("no word of the lost access")
	}
}
