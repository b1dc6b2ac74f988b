package cli

import (
	"encoding/base64"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/internal/redact"
)

// Relay copies the standard error of exec plugins. A plugin that hangs outlives this program; with our own standard error it would
// keep the reader of a pipe waiting.
type Relay struct {
	plugins *os.File
	done    chan struct{}
}

// relayTime bounds the wait for the last output of a plugin.
const relayTime = 500 * time.Millisecond

// NewRelay is nil if there is nothing to pass on.
func NewRelay(config *rest.Config, to io.Writer) (*Relay, error) {
	if config.ExecProvider == nil || term.IsTerminal(int(os.Stderr.Fd())) { //nolint:gosec // a file descriptor fits
		return nil, nil // a terminal never ends, and plugins may detect it
	}
	out, plugins, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	r := &Relay{plugins, make(chan struct{})}
	stderr := os.Stderr
	os.Stderr = plugins
	_, err = config.TransportConfig()
	os.Stderr = stderr
	go func() {
		defer close(r.done)
		defer out.Close()                            //nolint:errcheck // nothing was written
		_, _ = io.Copy(struct{ io.Writer }{to}, out) // stderr is the last resort
	}()
	return r, err
}

// End waits for the output of plugins that have ended.
func (r *Relay) End() {
	if r == nil {
		return
	}
	_ = r.plugins.Close() // nothing is kept back
	select {
	case <-r.done:
	case <-time.After(relayTime):
	}
}

// Sent holds the credentials that clients sent to API servers, since the error of a server may repeat them.
type Sent struct {
	mu      sync.Mutex
	secrets []string
}

// Watch records the credentials of the config's clients, including those of plugins.
func (s *Sent) Watch(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return telling{next, s} })
}

type telling struct {
	next http.RoundTripper
	sent *Sent
}

func (t telling) RoundTrip(r *http.Request) (*http.Response, error) {
	t.sent.note(r.Header.Get("Authorization"))
	return t.next.RoundTrip(r)
}

func (s *Sent) note(header string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, credential, found := strings.Cut(header, " ")
	if !found {
		credential = header
	}
	if credential == "" || slices.Contains(s.secrets, credential) {
		return
	}
	s.secrets = append(s.secrets, credential)
	if pair, err := base64.StdEncoding.DecodeString(credential); err == nil {
		_, password, _ := strings.Cut(string(pair), ":")
		s.secrets = append(s.secrets, password, string(pair))
	}
}

// Clean returns the text without these credentials.
func (s *Sent) Clean(text string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return redact.Clean(text, s.secrets...)
}
