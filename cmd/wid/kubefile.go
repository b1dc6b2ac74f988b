package main

import (
	"cmp"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

// kubeFile names a kubeconfig and a context. Empty fields mean the defaults of kubectl.
type kubeFile struct {
	path, context string
	answers       int64 // bounds an answer of the cluster, in bytes; transport.MaxBody otherwise
}

func (k kubeFile) rules() *clientcmd.ClientConfigLoadingRules {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = k.path
	return rules
}

// config is for clients of the cluster.
func (k kubeFile) config() (*rest.Config, error) {
	config, _, err := k.configAndNamespace()
	return config, err
}

// configAndNamespace also returns the namespace of the context, "default" if it names none. It reads a pipe once.
func (k kubeFile) configAndNamespace() (*rest.Config, string, error) {
	loader, err := k.load()
	if err != nil {
		return nil, "", err
	}
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, "", err
	}
	boundAnswersTo(config, cmp.Or(k.answers, transport.MaxBody))
	namespace, _, err := loader.Namespace()
	return config, namespace, err
}

// load reads the files once, since a pipe such as <(…) of the shell has no second time.
func (k kubeFile) load() (clientcmd.ClientConfig, error) {
	rules, overrides := k.rules(), &clientcmd.ConfigOverrides{CurrentContext: k.context}
	config, err := rules.Load()
	switch {
	case err != nil:
		return nil, err
	case clientcmdapi.IsConfigEmpty(config): // the pod's own serves as well
		return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides), nil
	}
	return clientcmd.NewNonInteractiveClientConfig(*config, "", overrides, rules), nil
}

// boundAnswers bounds size and waiting time of answers.
func boundAnswers(config *rest.Config) { boundAnswersTo(config, transport.MaxBody) }

func boundAnswersTo(config *rest.Config, bytes int64) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return patience{transport.BoundedTo(next, bytes)} })
}

// patience removes a Retry-After that exceeds the deadline: client-go then returns the error of the server.
type patience struct{ next http.RoundTripper }

func (p patience) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := p.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	// Without it no client follows a redirect with the user's credentials.
	resp.Header.Del("Location")
	deadline, limited := r.Context().Deadline()
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	// client-go knows seconds only.
	if err == nil && limited && time.Until(deadline) < time.Duration(seconds)*time.Second+grace {
		resp.Header.Del("Retry-After")
	}
	return resp, nil
}

// relay copies the standard error of exec plugins. A plugin that hangs outlives this program; with our own standard error it would
// keep the reader of a pipe waiting.
type relay struct {
	plugins *os.File
	done    chan struct{}
}

// relayTime bounds the wait for the last output of a plugin.
const relayTime = 500 * time.Millisecond

// relayPlugin sets up the exec plugin of the kubeconfig, if there is one. client-go reads os.Stderr during the set-up only, and keeps
// the plugin for all clients with the same configuration.
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
		return nil, nil // a terminal never ends, and plugins may detect it
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
		_, _ = io.Copy(struct{ io.Writer }{to}, out) // stderr is the last resort
	}()
	return r, err
}

// end waits for the output of plugins that have ended.
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

// sent holds the credentials that clients sent to API servers, since the error of a server may repeat them.
type sent struct {
	mu      sync.Mutex
	secrets []string
}

// watch records the credentials of the config's clients, including those of plugins.
func (s *sent) watch(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return telling{next, s} })
}

type telling struct {
	next http.RoundTripper
	sent *sent
}

func (t telling) RoundTrip(r *http.Request) (*http.Response, error) {
	t.sent.note(r.Header.Get("Authorization"))
	return t.next.RoundTrip(r)
}

func (s *sent) note(header string) {
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

// clean returns the text without these credentials.
func (s *sent) clean(text string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return redact.Clean(text, s.secrets...)
}

// maxFile bounds files that are read whole, in bytes.
const maxFile = 1 << 20

var errTooLarge = errors.New("it is larger than a megabyte")

// readBounded reads a file that a flag names.
func readBounded(name string) ([]byte, error) {
	file, err := os.Open(name) //nolint:gosec // the caller names it
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	content, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(content) > maxFile {
		err = errTooLarge
	}
	return content, err
}

// replaceFile writes a file of that mode, whatever the umask is, whole or not at all. A symbolic link of that name is
// replaced, not followed.
func replaceFile(name string, content []byte, mode os.FileMode) error {
	file, err := os.CreateTemp(filepath.Dir(name), ".wid-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) //nolint:errcheck // it is gone if all went well
	_, err = file.Write(content)
	if chmodErr := os.Chmod(file.Name(), mode); err == nil {
		err = chmodErr
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(file.Name(), name)
}
