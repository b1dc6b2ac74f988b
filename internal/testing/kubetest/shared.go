package kubetest

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// Apply creates what does not exist.
func Apply(t testing.TB, c client.Client, manifests ...string) {
	t.Helper()
	for _, object := range parse(t, manifests) {
		if err := c.Create(t.Context(), object); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
}

// Delete deletes what Apply has created, also when the test has ended.
func Delete(t testing.TB, c client.Client, manifests ...string) {
	t.Helper()
	for _, object := range parse(t, manifests) {
		if err := c.Delete(context.WithoutCancel(t.Context()), object); err != nil {
			t.Error(err)
		}
	}
}

func parse(t testing.TB, manifests []string) (objects []*unstructured.Unstructured) {
	t.Helper()
	for document := range strings.SplitSeq("\n"+strings.Join(manifests, "\n---\n"), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
			t.Fatal(err)
		}
		if object.Object != nil {
			objects = append(objects, object)
		}
	}
	return objects
}

// Eventually polls a real API server.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	const patience = 2 * time.Minute
	for deadline := time.Now().Add(patience); !condition(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("within %s it never happened that %s", patience, what)
		}
	}
}

// RunManager runs a manager until the test ends or stop is called.
func RunManager(t testing.TB, mgr interface {
	Start(ctx context.Context) error
},
) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}
