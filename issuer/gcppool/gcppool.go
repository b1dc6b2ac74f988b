package gcppool

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"golang.org/x/oauth2"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/gcpname"
	"github.com/workloadid/workloadid/internal/transport"
	"github.com/workloadid/workloadid/issuer"
)

const (
	self    = provider.Name("gcppool")
	service = "the IAM API"
	apiRoot = "https://iam.googleapis.com/v1/"
)

// Options holds the optional settings of [Open].
type Options struct {
	// TokenSource signs in, with the scope cloud-platform. Nil: application
	// default credentials.
	TokenSource oauth2.TokenSource
	// HTTPClient sends the requests to Google. Nil: a client with the proxies
	// of the environment.
	HTTPClient *http.Client
}

// Store is an [issuer.Store]. A version is the content.
type Store struct {
	name     string
	client   *http.Client
	source   oauth2.TokenSource
	provider gcp.Provider
	options  []auth.Option

	mu   sync.Mutex
	kept map[string]string // the contents of files by path
}

var _ issuer.Store = (*Store)(nil)

// Open returns the [Store] of a provider, which has to exist. It sends no
// request.
func Open(name string, opts Options) (*Store, error) {
	provider, err := gcpname.ParseWorkloadIdentityProvider(name, gcpname.DefaultUniverse)
	if err != nil {
		return nil, fmt.Errorf("gcppool: %.200q is not the name of a provider, "+
			"projects/<number>/locations/global/workloadIdentityPools/<pool>/providers/<provider>: %w", name, err)
	}
	s := &Store{name: provider.Name, client: new(transport.Pool).For(opts.HTTPClient, nil), source: opts.TokenSource,
		kept:    map[string]string{},
		options: []auth.Option{auth.WithAllowShellOut()}}
	if opts.HTTPClient != nil {
		s.options = append(s.options, auth.WithHTTPClient(opts.HTTPClient))
	}
	return s, nil
}

// Read implements [issuer.Store].
func (s *Store) Read(ctx context.Context, path string) (content []byte, version string, err error) {
	content, version, err = s.readKept(path)
	if path == issuer.RecordFile || err == nil {
		return content, version, err
	}
	p, err := s.get(ctx, s.operation("read", path))
	switch {
	case err != nil:
		return nil, "", err
	case path == issuer.DiscoveryFile:
		document, _ := json.Marshal(map[string]string{"issuer": p.OIDC.Issuer}) // strings always encode
		_ = s.keep(path, string(document), "")                                  // fails if another call has kept one
		return s.readKept(path)
	case path != issuer.KeysFile || p.OIDC.JWKS == "":
		return nil, "", issuer.ErrNotExist
	}
	return []byte(p.OIDC.JWKS), p.OIDC.JWKS, nil
}

// Write implements [issuer.Store].
func (s *Store) Write(ctx context.Context, path string, content []byte, version string) error {
	if path != issuer.KeysFile {
		return s.keep(path, string(content), version)
	}
	operation := s.operation("write", path)
	p, err := s.get(ctx, operation)
	switch {
	case err != nil:
		return err
	case p.OIDC.JWKS != version:
		return issuer.ErrChanged
	}
	return s.upload(ctx, operation, content)
}

func (s *Store) readKept(path string) ([]byte, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	content := s.kept[path]
	if content == "" {
		return nil, "", issuer.ErrNotExist
	}
	return []byte(content), content, nil
}

func (s *Store) keep(path, content, version string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if version != s.kept[path] {
		return issuer.ErrChanged
	}
	s.kept[path] = content
	return nil
}

func (s *Store) operation(verb, path string) string {
	return fmt.Sprintf("%s %q of %q", verb, path, s.name)
}
