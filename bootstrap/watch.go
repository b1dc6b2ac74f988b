package bootstrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"time"
)

// Watch keeps a ClusterInfo current while servers and certificate authorities come and go. The zero value of all fields but
// Info is usable. A Watch is for one call of Run, which calls Changed and Failed on its own goroutine.
//
// Pins and signatures have no part in it: what a verified server publishes is the new trust, so whoever may write the
// ConfigMap kube-public/cluster-info decides whom a Watch follows.
type Watch struct {
	// Info is what is trusted at the start.
	Info *ClusterInfo
	// Addresses are further https URLs under which the cluster may be reached. They are verified with the certificate
	// authorities of the current ClusterInfo, like its own server.
	Addresses []string
	// File is a local copy, replaced atomically with mode 0600; a copy that could not be written is tried again at each look. If
	// it is there at the start, its server is asked too, and believed only with a certificate of an authority that Info
	// trusts. It has to be a regular file that only this process's user or the superuser can write: every node has
	// such a certificate for its own address. (Other systems than Unix have no owner to check.) Empty: none.
	File string
	// Interval is the time between two looks, with a tenth of jitter. 0: five minutes.
	Interval time.Duration
	// Changed is called with each new ClusterInfo, which it must not change.
	Changed func(*ClusterInfo)
	// Failed is called when no address answers, and what is current stays, or when the local copy cannot be written. Nil:
	// nobody is told.
	Failed func(error)
}

const defaultWatchInterval = 5 * time.Minute

// Run looks for a new cluster-info until the context ends, and returns the context's error. Other errors come before the
// first look: a ClusterInfo or an address that cannot be used, or a local copy that cannot be read.
func (w *Watch) Run(ctx context.Context) error {
	if err := w.check(); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	saved, err := w.saved()
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	state := watching{current: w.Info}
	for {
		w.step(ctx, &state, saved)
		if !w.pause(ctx) {
			return ctx.Err()
		}
	}
}

// watching is what a Watch knows between two looks.
type watching struct {
	current *ClusterInfo
	unsaved bool // current is not in the local copy
}

func (w *Watch) step(ctx context.Context, s *watching, saved *ClusterInfo) {
	fresh, err := w.look(ctx, s.current, saved)
	w.fail(ctx, err)
	changed := err == nil && !fresh.equal(s.current)
	if changed {
		s.current, s.unsaved = fresh, w.File != ""
	}
	if s.unsaved {
		err := s.current.Save(w.File)
		s.unsaved = err != nil
		w.fail(ctx, err)
	}
	if changed && w.Changed != nil {
		w.Changed(fresh)
	}
}

// fail tells of an error that is none of the context's end.
func (w *Watch) fail(ctx context.Context, err error) {
	if err != nil && w.Failed != nil && ctx.Err() == nil {
		w.Failed(err)
	}
}

func (w *Watch) check() error {
	if w.Info == nil {
		return errors.New("there is no cluster information to begin with")
	}
	for _, address := range w.Addresses {
		if _, err := serverURL(address); err != nil {
			return err
		}
	}
	return w.Info.check()
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

func (i *ClusterInfo) equal(other *ClusterInfo) bool {
	return i.Server == other.Server && i.TLSServerName == other.TLSServerName && bytes.Equal(i.CAData, other.CAData)
}

// saved reads the local copy. Nil: there is none.
func (w *Watch) saved() (*ClusterInfo, error) {
	if w.File == "" {
		return nil, nil
	}
	content, err := readFile(w.File, ownOnly)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var info *ClusterInfo
	if err == nil {
		info, err = ParseClusterInfo(content)
	}
	if err != nil {
		return nil, fmt.Errorf("read the local copy %.300q: %w", w.File, err)
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
