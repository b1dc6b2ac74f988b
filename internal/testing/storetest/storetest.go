// Package storetest checks stores of an issuer's documents.
package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/testing/testenv"
	"github.com/workloadid/workloadid/issuer"
)

// Check uses an empty Store as publishers do.
func Check(t *testing.T, store issuer.Store) {
	t.Helper()
	ctx := t.Context()
	if _, _, err := store.Read(ctx, issuer.KeysFile); !errors.Is(err, issuer.ErrNotExist) {
		t.Fatalf("missing: %v", err)
	}
	if err := store.Write(ctx, issuer.KeysFile, keySet("one"), ""); err != nil {
		t.Fatal(err)
	}
	if err := store.Write(ctx, issuer.KeysFile, keySet("two"), ""); !errors.Is(err, issuer.ErrChanged) {
		t.Errorf("created twice: %v", err)
	}
	content, version, err := store.Read(ctx, issuer.KeysFile)
	if err != nil || !bytes.Equal(content, keySet("one")) || version == "" {
		t.Fatalf("got %q of version %q and error %v, want the first content and its version", content, version, err)
	}
	if err := store.Write(ctx, issuer.KeysFile, keySet("three"), version); err != nil {
		t.Fatal(err)
	}
	if err := store.Write(ctx, issuer.KeysFile, keySet("four"), version); !errors.Is(err, issuer.ErrChanged) {
		t.Errorf("old version: %v", err)
	}
	if err := store.Write(ctx, issuer.DiscoveryFile, []byte("{}"), version); !errors.Is(err, issuer.ErrChanged) {
		t.Errorf("a version of a file that does not exist: %v", err)
	}
	if content, _, err = store.Read(ctx, issuer.KeysFile); err != nil || !bytes.Equal(content, keySet("three")) {
		t.Errorf("got %q and error %v, want the third content", content, err)
	}
	oneOfManyWrites(t, store)
}

// keySet returns a content that clouds accept too.
func keySet(id string) []byte {
	return fmt.Appendf(nil, `{"keys":[{"kty":"RSA","alg":"RS256","use":"sig","kid":%q,"n":"sXch","e":"AQAB"}]}`, id)
}

func oneOfManyWrites(t *testing.T, store issuer.Store) {
	t.Helper()
	results := make(chan error, 8)
	var writers sync.WaitGroup
	for i := range cap(results) {
		writers.Go(func() { results <- store.Write(t.Context(), issuer.RecordFile, []byte(fmt.Sprint(i)), "") })
	}
	writers.Wait()
	close(results)
	n := 0
	for err := range results {
		if err == nil {
			n++
		} else if !errors.Is(err, issuer.ErrChanged) {
			t.Error(err)
		}
	}
	if n != 1 {
		t.Errorf("%d of %d writers created the file", n, cap(results))
	}
}

// CheckStale checks that a Store whose reads are old overwrites nothing. Both
// Stores keep the same files, stale through a client with the transport of
// Stale.
func CheckStale(t *testing.T, honest, stale issuer.Store) {
	t.Helper()
	ctx := t.Context()
	if err := honest.Write(ctx, issuer.KeysFile, []byte("old"), ""); err != nil {
		t.Fatal(err)
	}
	_, version, err := stale.Read(ctx, issuer.KeysFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := honest.Write(ctx, issuer.KeysFile, []byte("new"), version); err != nil {
		t.Fatal(err)
	}
	content, version, err := stale.Read(ctx, issuer.KeysFile)
	if err != nil || string(content) != "old" {
		t.Fatalf("got %q and error %v, want the stale content", content, err)
	}
	if err := stale.Write(ctx, issuer.KeysFile, []byte("older"), version); !errors.Is(err, issuer.ErrChanged) {
		t.Errorf("a write of a stale version: got error %v, want %v", err, issuer.ErrChanged)
	}
	if content, _, err := honest.Read(ctx, issuer.KeysFile); err != nil || string(content) != "new" {
		t.Errorf("got %q and error %v, want the new content", content, err)
	}
}

// Stale returns a client that repeats the first successful answer to a GET, as
// a broken cache does.
func Stale(client *http.Client) *http.Client {
	return &http.Client{Transport: &staleTransport{next: client.Transport}}
}

type staleTransport struct {
	next   http.RoundTripper
	header http.Header
	body   []byte
}

func (s *staleTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet && s.header != nil {
		return &http.Response{StatusCode: http.StatusOK, Header: s.header.Clone(),
			Body: io.NopCloser(bytes.NewReader(s.body)), Request: r}, nil
	}
	resp, err := s.next.RoundTrip(r)
	if err == nil && r.Method == http.MethodGet && resp.StatusCode == http.StatusOK {
		s.header = resp.Header
		s.body, err = io.ReadAll(resp.Body)
		_ = resp.Body.Close() // nothing was written
		resp.Body = io.NopCloser(bytes.NewReader(s.body))
	}
	return resp, err
}

// CheckRefused checks an error of a Store that lets no publisher take the file
// for missing or changed, and holds no secret.
func CheckRefused(t *testing.T, err error, secret string, reason provider.Reason, want ...string) {
	t.Helper()
	testenv.CheckError(t, err, reason, want...)
	if errors.Is(err, issuer.ErrNotExist) || errors.Is(err, issuer.ErrChanged) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %q, want one line that is neither %v nor %v", err, issuer.ErrNotExist, issuer.ErrChanged)
	}
	if strings.Contains(err.Error(), secret) {
		t.Errorf("got %q, want no secret", err)
	}
}

// BadAnswers are answers to Read that are no file, by the text that their
// errors hold.
func BadAnswers() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"unexpected EOF": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", `"1"`)
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"keys":[`)
		},
		"larger than 1048576 bytes": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", `"1"`)
			_, _ = w.Write(make([]byte, issuer.MaxFile+1))
		},
		"it has no ETag": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") },
	}
}

// CheckPublished writes the files that clouds read, and checks how they are
// served below an address.
func CheckPublished(t *testing.T, store issuer.Store, client *http.Client, address string) {
	t.Helper()
	for path, contentType := range map[string]string{issuer.DiscoveryFile: "application/json",
		issuer.KeysFile: "application/jwk-set+json"} {
		t.Run(path, func(t *testing.T) {
			if err := store.Write(t.Context(), path, []byte("{}"), ""); err != nil {
				t.Fatal(err)
			}
			_, got := Get(t, client, address+"/"+path)
			if want := fmt.Sprintf("200 [%s] [public, max-age=300]", contentType); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// CheckPrefixes uses empty Stores of several prefixes.
func CheckPrefixes(t *testing.T, open func(t *testing.T, prefix string) issuer.Store) {
	t.Helper()
	for name, prefix := range map[string]string{"prefix": "cluster-1", "no prefix": "",
		"slashes and special characters": "/a/b=c+d@e:f/"} {
		t.Run(name, func(t *testing.T) { Check(t, open(t, prefix)) })
	}
}

// Get returns the content at an address, and its status, content type and cache
// control.
func Get(t *testing.T, client *http.Client, address string) (content []byte, header string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // nothing was written
	if content, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	return content, fmt.Sprint(resp.StatusCode, resp.Header["Content-Type"], resp.Header["Cache-Control"])
}
