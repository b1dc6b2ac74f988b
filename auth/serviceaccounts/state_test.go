package serviceaccounts_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/fake"
	k8stesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/serviceaccounts"
	"github.com/workloadid/workloadid/cache"
)

var (
	app       = client.ObjectKey{Namespace: "tenant-a", Name: "app"}
	forbidden = apierrors.NewForbidden(corev1.Resource("serviceaccounts"), "", errors.New("no rule"))
)

func answerLists(c *fake.FakeMetadataClient, err error) {
	c.PrependReactor("list", "serviceaccounts", func(k8stesting.Action) (bool, k8sruntime.Object, error) { return true, nil, err })
}

// readFor reads and says how long that took.
func readFor(r reader) (time.Duration, error) {
	start := time.Now()
	err := r.Get(context.Background(), app, &corev1.ServiceAccount{})
	return time.Since(start), err
}

func check(t *testing.T, err error, reason auth.Reason, want ...string) {
	t.Helper()
	if !errors.Is(err, reason) {
		t.Fatalf("got %v, not %s", err, reason)
	}
	for _, want := range want {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
}

// A permanent refusal of the API server is reported at once, with its remedy, to auth and to other callers.
func TestRefusals(t *testing.T) {
	for name, tt := range map[string]struct {
		answer  error
		options serviceaccounts.Options
		reason  auth.Reason
		want    []string
	}{
		"no right":              {forbidden, serviceaccounts.Options{}, auth.ErrDenied, []string{"verbs list and watch on serviceaccounts in all namespaces", "HTTP 403"}},
		"no right in namespace": {forbidden, serviceaccounts.Options{Namespace: "tenant-a"}, auth.ErrDenied, []string{`list and watch on serviceaccounts in namespace "tenant-a"`}},
		"login expired":         {apierrors.NewUnauthorized("Unauthorized"), serviceaccounts.Options{}, auth.ErrUnavailable, []string{"check the kubeconfig", "HTTP 401"}},
		"bad request":           {apierrors.NewBadRequest("no such field"), serviceaccounts.Options{}, auth.ErrMisconfigured, []string{"options of the reader", "list and watch", "HTTP 400"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := fakeClient()
				answerLists(c, tt.answer)
				r := newReader(t, c, tt.options)
				run(t, r)
				synctest.Wait()
				took, err := readFor(r)
				check(t, err, tt.reason, tt.want...)
				if took != 0 {
					t.Errorf("it took %s", took)
				}
				_, err = auth.GetAccessToken(context.Background(), &aws.Provider{}, auth.WithServiceAccount(app, r.Client(nil)),
					auth.WithOwner(cache.InvolvedObject{Kind: "Bucket", Namespace: "tenant-a", Name: "b"}), auth.WithSTSRegion("eu-central-1"))
				check(t, err, tt.reason, append(tt.want, `aws: ServiceAccount "tenant-a/app"`)...)
				if strings.Contains(err.Error(), "verb get") {
					t.Errorf("a remedy that does not help: %v", err)
				}
			})
		})
	}
}

// run runs a reader until the test ends.
func run(t testing.TB, r *serviceaccounts.Reader) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Start(ctx) }()
	var stopped bool
	stop = func() {
		if cancel(); stopped {
			return
		}
		stopped = true
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// Get never waits forever.
func TestGetWaitsForALimitedTime(t *testing.T) {
	for name, tt := range map[string]struct {
		started bool
		answer  error
		timeout time.Duration
		wait    time.Duration
		want    []string
	}{
		"not started":     {false, nil, 0, 10 * time.Second, []string{"has not been started; add it to the manager"}},
		"unreachable":     {true, errors.New("connect: connection refused"), 0, 10 * time.Second, []string{"connection refused"}},
		"as long as told": {true, apierrors.NewInternalError(errors.New("etcd")), time.Minute, time.Minute, []string{"etcd", "HTTP 500"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := fakeClient()
				if tt.answer != nil {
					answerLists(c, tt.answer)
				}
				r := newReader(t, c, serviceaccounts.Options{SyncTimeout: tt.timeout})
				if tt.started {
					run(t, r)
				}
				took, err := readFor(r)
				check(t, err, auth.ErrUnavailable, tt.want...)
				if took != tt.wait {
					t.Errorf("it took %s instead of %s", took, tt.wait)
				}
				if err := r.Check(nil); err == nil {
					t.Error("it counts as ready")
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				if err := r.Get(ctx, app, &corev1.ServiceAccount{}); err == nil || ctx.Err() == nil {
					t.Errorf("with a deadline of its own: %v", err)
				}
			})
		})
	}
}

// An API server that does not answer at all.
func TestSilentAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, silence := fakeClient(metadataOf("tenant-a", "app", nil)), make(chan struct{})
		c.PrependReactor("list", "serviceaccounts", func(k8stesting.Action) (bool, k8sruntime.Object, error) {
			<-silence
			return false, nil, nil
		})
		r := newReader(t, c, serviceaccounts.Options{})
		run(t, r)
		took, err := readFor(r)
		check(t, err, auth.ErrUnavailable, "have not been read within 10s")
		if took != 10*time.Second {
			t.Errorf("it took %s", took)
		}
		close(silence)
		if _, err := readFor(r); err != nil {
			t.Error(err)
		}
	})
}

// A manager may start callers of the Reader before the Reader.
func TestGetBeforeStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReader(t, fakeClient(metadataOf("tenant-a", "app", nil)), serviceaccounts.Options{})
		read := make(chan error, 2)
		go func() { _, err := readFor(r); read <- err }()
		go func() { read <- r.WaitForSync(context.Background()) }()
		time.Sleep(5 * time.Second)
		run(t, r)
		for range cap(read) {
			if err := <-read; err != nil {
				t.Error(err)
			}
		}
	})
}

// API servers without streaming lists refuse those before they are asked for a list.
func TestOldAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, list := fakeClient(metadataOf("tenant-a", "app", nil)), make(chan struct{})
		var refused atomic.Int32
		c.PrependWatchReactor("serviceaccounts", func(a k8stesting.Action) (bool, watch.Interface, error) {
			if w, ok := a.(k8stesting.WatchActionImpl); ok && w.ListOptions.SendInitialEvents != nil {
				refused.Add(1)
				return true, nil, apierrors.NewBadRequest("sendInitialEvents is forbidden")
			}
			return false, nil, nil
		})
		c.PrependReactor("list", "serviceaccounts", func(k8stesting.Action) (bool, k8sruntime.Object, error) {
			<-list
			return false, nil, nil
		})
		r := newReader(t, struct{ metadata.Interface }{c}, serviceaccounts.Options{})
		run(t, r)
		time.AfterFunc(time.Second, func() { close(list) })
		if took, err := readFor(r); err != nil || took != time.Second || refused.Load() == 0 {
			t.Errorf("after %s and %d refusals: %v", took, refused.Load(), err)
		}
	})
}

// Pending and later reads fail when the Reader stops.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fakeClient()
		answerLists(c, errors.New("connection refused"))
		r := newReader(t, c, serviceaccounts.Options{})
		stop := run(t, r)
		read := make(chan error, 2)
		go func() { _, err := readFor(r); read <- err }()
		go func() { read <- r.WaitForSync(context.Background()) }()
		synctest.Wait()
		stop()
		for range cap(read) {
			check(t, <-read, auth.ErrUnavailable, "the reader has ended")
		}

		r = newReader(t, fakeClient(metadataOf("tenant-a", "app", nil)), serviceaccounts.Options{})
		stop = run(t, r)
		if _, err := readFor(r); err != nil {
			t.Fatal(err)
		}
		stop()
		took, err := readFor(r)
		check(t, err, auth.ErrUnavailable, "the reader has ended")
		if took != 0 || r.Check(nil) == nil {
			t.Errorf("it took %s, and it counts as ready: %t", took, r.Check(nil) == nil)
		}
	})
}
