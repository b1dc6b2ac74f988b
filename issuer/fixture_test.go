package issuer_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/issuer"
)

const issuerURL = "https://oidc.example.com/cluster-1"

// apiServer answers /openid/v1/jwks from memory.
type apiServer struct {
	mu     sync.Mutex
	status int
	body   []byte
	looks  int
}

func newAPIServer(keys ...jose.JSONWebKey) *apiServer {
	s := &apiServer{status: http.StatusOK}
	s.show(keys...)
	return s
}

func (s *apiServer) show(keys ...jose.JSONWebKey) { s.answer(http.StatusOK, marshalKeys(keys...)) }

func (s *apiServer) answer(status int, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status, s.body = status, body
}

// takeLooks returns the number of looks since the last call.
func (s *apiServer) takeLooks() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	looks := s.looks
	s.looks = 0
	return looks
}

func (s *apiServer) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	if r.URL.Path != "/"+issuer.KeysFile {
		return nil, &http.MaxBytesError{}
	}
	return &http.Response{StatusCode: s.status, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(s.body)),
		Request: r}, nil
}

func (s *apiServer) config() *rest.Config {
	return &rest.Config{Host: "https://10.0.0.1:6443", Transport: s}
}

// memory is a Store whose faults a test can set.
type memory struct {
	mu       sync.Mutex
	files    map[string][]byte
	versions map[string]int
	writes   []string
	// onWrite runs before a Write, without the lock. An error is the answer.
	onWrite func(path string) error
	// onRead may replace what a Read answers.
	onRead func(path string, content []byte, version string, err error) ([]byte, string, error)
}

func newMemory() *memory { return &memory{files: map[string][]byte{}, versions: map[string]int{}} }

func (m *memory) Read(_ context.Context, path string) (content []byte, version string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	err = issuer.ErrNotExist
	if stored, ok := m.files[path]; ok {
		content, version, err = bytes.Clone(stored), strconv.Itoa(m.versions[path]), nil
	}
	if m.onRead != nil {
		return m.onRead(path, content, version, err)
	}
	return content, version, err
}

func (m *memory) Write(_ context.Context, path string, content []byte, version string) error {
	if m.onWrite != nil {
		if err := m.onWrite(path); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	current := ""
	if _, ok := m.files[path]; ok {
		current = strconv.Itoa(m.versions[path])
	}
	if version != current {
		return issuer.ErrChanged
	}
	m.put(path, content)
	m.writes = append(m.writes, path)
	return nil
}

// put needs the lock, or a test that runs alone.
func (m *memory) put(path string, content []byte) {
	m.files[path] = bytes.Clone(content)
	m.versions[path]++
}

// published returns the IDs of the published keys.
func (m *memory) published(t *testing.T) []string {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(m.files[issuer.KeysFile], &set); err != nil {
		t.Fatalf("published keys: %v", err)
	}
	ids := []string{}
	for _, key := range set.Keys {
		ids = append(ids, key.KeyID)
	}
	return ids
}

func (m *memory) expect(t *testing.T, want ...string) {
	t.Helper()
	if got := m.published(t); !slices.Equal(got, want) {
		t.Errorf("published %q, want %q", got, want)
	}
}

// takeWrites returns the files that were written since the last call.
func (m *memory) takeWrites() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	writes := m.writes
	m.writes = nil
	return writes
}

func ecKey(t testing.TB, id string, curve elliptic.Curve, algorithm string) jose.JSONWebKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return jose.JSONWebKey{Key: key.Public(), KeyID: id, Use: "sig", Algorithm: algorithm}
}

func es256(t testing.TB, id string) jose.JSONWebKey { return ecKey(t, id, elliptic.P256(), "ES256") }

func rs256(t testing.TB, id string, bits int) jose.JSONWebKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		t.Fatal(err)
	}
	return jose.JSONWebKey{Key: key.Public(), KeyID: id, Use: "sig", Algorithm: "RS256"}
}

func marshalKeys(keys ...jose.JSONWebKey) []byte {
	content, err := json.Marshal(jose.JSONWebKeySet{Keys: keys})
	if err != nil {
		panic(err)
	}
	return content
}

func newPublisher(server *apiServer, store issuer.Store) *issuer.Publisher {
	return &issuer.Publisher{Cluster: server.config(), Issuer: issuerURL, Store: store}
}

func mustPublish(t *testing.T, p *issuer.Publisher) issuer.Result {
	t.Helper()
	result, err := p.Publish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return result
}
