package main

import (
	"io"
	"os"
	"time"

	"golang.org/x/term"
	"k8s.io/client-go/rest"
)

// relay passes on what exec plugins of a kubeconfig write to standard error. They are not given that itself: one that hangs
// outlives this program, and whoever reads our standard error from a pipe would wait for its end.
type relay struct {
	plugins *os.File
	done    chan struct{}
}

// relayTime is for the last words of a plugin. One that is still there has no more of it.
const relayTime = 500 * time.Millisecond

// relayPlugin has client-go set up the exec plugin of the kubeconfig, if there is one. client-go takes os.Stderr for it
// there and then, offers no other way, and keeps the plugin for all clients with the same configuration.
func (id *identity) relayPlugin(config *rest.Config) error {
	r, err := newRelay(config, id.stderr)
	if r != nil {
		id.relay.Store(r)
	}
	return err
}

// newRelay is nil if there is nothing to pass on.
func newRelay(config *rest.Config, to io.Writer) (*relay, error) {
	if config.ExecProvider == nil || term.IsTerminal(int(os.Stderr.Fd())) { //nolint:gosec // a file descriptor fits
		return nil, nil // nobody waits for the end of a terminal, and plugins may want to know that it is one
	}
	out, plugins, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	r := &relay{plugins, make(chan struct{})}
	stderr := os.Stderr
	os.Stderr = plugins
	_, err = config.TransportConfig()
	os.Stderr = stderr
	go func() {
		defer close(r.done)
		defer out.Close()                            //nolint:errcheck // nothing was written
		_, _ = io.Copy(struct{ io.Writer }{to}, out) // there is nobody else to tell
	}()
	return r, err
}

// end waits for what plugins that have ended have written.
func (r *relay) end() {
	if r == nil {
		return
	}
	_ = r.plugins.Close() // nothing is kept back
	select {
	case <-r.done:
	case <-time.After(relayTime):
	}
}
