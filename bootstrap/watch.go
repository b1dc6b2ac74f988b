package bootstrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"time"
)

// Watch keeps a ClusterInfo current while servers and certificate authorities come and go. The zero value of all fields but
// Info is usable. A Watch is for one call of Run.
type Watch struct {
	// Info is what is trusted at the start.
	Info *ClusterInfo
	// Addresses are further https URLs under which the cluster may be reached. They are verified with the certificate
	// authorities of the current ClusterInfo, like its own server.
	Addresses []string
	// File is a local copy, replaced atomically with mode 0600. If it is there at the start, it is read too; it is used
	// only if a server that Info trusts confirms it, since anybody may have written it.
	File string
	// Interval is the time between two looks, with a tenth of jitter. 0: five minutes.
	Interval time.Duration
	// Changed is called with each new ClusterInfo, which it must not change.
	Changed func(*ClusterInfo)
	// Failed is called when no address answers; what is current stays. Nil: nobody is told.
	Failed func(error)
}

const defaultWatchInterval = 5 * time.Minute

// Run looks for a new cluster-info until the context ends, and returns the context's error. Other errors come before the
// first look: a ClusterInfo that cannot be used, or a local copy that cannot be read.
func (w *Watch) Run(ctx context.Context) error {
	if w.Info == nil {
		return errors.New("watch: there is no cluster information to begin with")
	}
	for _, address := range append([]string{w.Info.Server}, w.Addresses...) {
		if _, err := serverURL(address); err != nil {
			return fmt.Errorf("watch: %w", err)
		}
	}
	saved, err := w.saved()
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	current := w.Info
	for {
		if fresh, err := w.look(ctx, current, saved); err == nil {
			current = w.take(current, fresh)
		} else if w.Failed != nil && ctx.Err() == nil {
			w.Failed(err)
		}
		if !w.pause(ctx) {
			return ctx.Err()
		}
	}
}

// look asks the current server, then that of the local copy, then the other addresses. All are held to the current
// certificate authorities.
func (w *Watch) look(ctx context.Context, current, saved *ClusterInfo) (*ClusterInfo, error) {
	addresses := []string{current.Server}
	if saved != nil {
		addresses = append(addresses, saved.Server)
	}
	var failures []error
	for _, address := range append(addresses, w.Addresses...) {
		at := *current
		at.Server = address
		fresh, err := at.Refresh(ctx)
		if err == nil {
			return fresh, nil
		}
		failures = append(failures, err)
	}
	return nil, errors.Join(failures...)
}

// take saves and announces what has changed.
func (w *Watch) take(current, fresh *ClusterInfo) *ClusterInfo {
	if fresh.equal(current) {
		return current
	}
	if w.File != "" {
		if err := fresh.Save(w.File); err != nil && w.Failed != nil {
			w.Failed(fmt.Errorf("save the cluster information: %w", err))
		}
	}
	if w.Changed != nil {
		w.Changed(fresh)
	}
	return fresh
}

func (i *ClusterInfo) equal(other *ClusterInfo) bool {
	return i.Server == other.Server && i.TLSServerName == other.TLSServerName && bytes.Equal(i.CAData, other.CAData)
}

// saved reads the local copy. Nil: there is none.
func (w *Watch) saved() (*ClusterInfo, error) {
	if w.File == "" {
		return nil, nil
	}
	info, err := Load(context.Background(), w.File, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if stat, err := os.Stat(w.File); err != nil || stat.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf("the local copy %q can be written by others: chmod 600 it, or delete it", w.File)
	}
	return info, nil
}

func (w *Watch) pause(ctx context.Context) bool {
	interval := w.Interval
	if interval <= 0 {
		interval = defaultWatchInterval
	}
	jitter := 1 + 0.2*(rand.Float64()-0.5) //nolint:gosec // spreads load, keeps no secret
	timer := time.NewTimer(time.Duration(float64(interval) * jitter))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
