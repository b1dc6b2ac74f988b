// Package optimistic retries writes that fail if their object has changed
// since it was read.
package optimistic

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/pause"
)

// Tries is how often Write tries at most, within about five seconds.
const Tries = 8

// Write calls readAndWrite until it returns nil or an error that isConflict
// does not report, at most Tries times. It returns the last error, whatever
// that is. If ctx ends during a pause, it returns the cause and quotes the
// conflict. client-go's retry package returns nil for a timeout.
func Write(ctx context.Context, isConflict func(error) bool, readAndWrite func() error) error {
	pauses := wait.Backoff{Duration: 20 * time.Millisecond, Factor: 2, Jitter: 1, Steps: Tries}
	for {
		err := readAndWrite()
		if err == nil || !isConflict(err) || pauses.Steps == 1 {
			return err
		}
		if pause.For(ctx, pauses.Step()) != nil {
			return fmt.Errorf("%w while other writers were faster: %s", context.Cause(ctx), err.Error())
		}
	}
}

// PatchStatus calls change, which alters the status of object, and patches it
// with a resourceVersion. It writes nothing if change returns false. After a
// conflict it reads object and calls change again. Server-side apply with one
// owner for each condition would be simpler, but the conditions of released
// hubs are an atomic list: an apply of one condition would delete all others.
func PatchStatus(ctx context.Context, c client.Client, object client.Object, change func() (changed bool)) error {
	first := true
	return Write(ctx, apierrors.IsConflict, func() error {
		if !first {
			if err := c.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
				return err
			}
		}
		first = false
		base, ok := object.DeepCopyObject().(client.Object)
		if !ok {
			return fmt.Errorf("%T is no Kubernetes object", object)
		}
		if !change() {
			return nil
		}
		return c.Status().Patch(ctx, object, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
	})
}
