package bootstrap

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"time"

	"github.com/workloadid/workloadid/internal/pause"
)

// Watch keeps a [ClusterInfo] current while servers and CAs come and go. Only
// Info is required. A Watch serves one call of Run, which calls Changed
// and Failed on its own goroutine.
//
// Watch uses neither pins nor signatures. It trusts what a verified server
// publishes, so write access to the ConfigMap kube-public/cluster-info decides
// which cluster it follows.
type Watch struct {
	// Info is trusted at the start.
	Info *ClusterInfo
	// Addresses are further https URLs of the cluster. They are verified with
	// the CAs of the current ClusterInfo.
	Addresses []string
	// File is a local copy. Watch replaces it atomically, with mode 0600, and
	// repeats a failed write in the next interval. A copy that exists at the
	// start only supplies a further address, whose certificate must have a CA
	// of Info. Every node has such a certificate for its own address. So the
	// copy must be a regular file that only the process's user or the superuser
	// can write. Watch can check the owner only on Unix. Empty: no copy.
	File string
	// Interval is the time between two reads, with a tenth of jitter. 0: five
	// minutes.
	Interval time.Duration
	// Changed receives each new ClusterInfo and must not modify it.
	Changed func(*ClusterInfo)
	// Failed receives an error if no address answers, or if the local copy
	// cannot be written. Without an answer, Watch keeps the current
	// ClusterInfo. Nil drops the errors.
	Failed func(error)
}

const defaultWatchInterval = 5 * time.Minute

// Run reads cluster-info in intervals until the context is cancelled, and
// returns the context's error. Before the first read it refuses an unusable
// [ClusterInfo] or address, and an unreadable local copy.
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
		if err := pause.For(ctx, spread(cmp.Or(max(w.Interval, 0), defaultWatchInterval))); err != nil {
			return err
		}
	}
}

// watching is the state between two reads.
type watching struct {
	current *ClusterInfo
	unsaved bool // current is missing in the local copy
}

func (w *Watch) step(ctx context.Context, s *watching, saved *ClusterInfo) {
	fresh, err := w.read(ctx, s.current, saved)
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

// fail reports an error, unless the context was cancelled.
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

// read asks the current server, then the server of the local copy, then the
// other addresses. It verifies each with the current CAs.
func (w *Watch) read(ctx context.Context, current, saved *ClusterInfo) (*ClusterInfo, error) {
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

// saved reads the local copy. It returns nil if there is none.
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

// spread adds or subtracts up to a tenth.
func spread(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (1 + 0.2*(rand.Float64()-0.5))) //nolint:gosec // spreads load, keeps no secret
}
