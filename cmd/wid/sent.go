package main

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/internal/redact"
)

// sent is what clients of API servers have sent as credentials. A server that refuses may repeat it: the kubeconfig's user is
// nobody whom the library knows.
type sent struct {
	mu      sync.Mutex
	secrets []string
}

// watch has the config's clients tell. It sees what a plugin adds, too.
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
