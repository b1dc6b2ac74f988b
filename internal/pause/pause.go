// Package pause waits between two tries.
package pause

import (
	"context"
	"time"
)

// For returns nil after d, or the error of ctx if that ends first.
func For(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
