package issuer_test

import (
	"bytes"
	"context"
	"crypto/elliptic"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/testing/slowserver"
	"github.com/workloadid/workloadid/internal/testing/testenv"
	"github.com/workloadid/workloadid/issuer"
)

func TestPublishMakesTheDocuments(t *testing.T) {
	server, store := newAPIServer(rs256(t, "b", 2048), es256(t, "a")), newMemory()
	p := newPublisher(server, store)
	result := mustPublish(t, p)
	if want := []string{issuer.RecordFile, issuer.KeysFile, issuer.DiscoveryFile}; !slices.Equal(result.Written, want) ||
		!slices.Equal(store.takeWrites(), want) {
		t.Errorf("written: %q, want the record first and the discovery document last", result.Written)
	}
	if want := []string{"a", "b"}; !slices.Equal(result.Added, want) || !slices.Equal(store.published(t), want) {
		t.Errorf("added %q, published %q, want %q", result.Added, store.published(t), want)
	}
	const want = `{"issuer":"https://oidc.example.com/cluster-1","jwks_uri":"https://oidc.example.com/cluster-1/openid/v1/jwks",` +
		`"response_types_supported":["id_token"],"subject_types_supported":["public"],"id_token_signing_alg_values_supported":["ES256","RS256"]}`
	if got := string(store.files[issuer.DiscoveryFile]); got != want {
		t.Errorf("discovery document\n got %s\nwant %s", got, want)
	}
	if again := mustPublish(t, p); again.Written != nil || again.Added != nil || store.takeWrites() != nil {
		t.Errorf("the second Publish wrote %q", again.Written)
	}
}

func TestPublishWarnsOfAlgorithms(t *testing.T) {
	p := newPublisher(newAPIServer(rs256(t, "rsa", 2048), es256(t, "p256"), ecKey(t, "p384", elliptic.P384(), "ES384")),
		newMemory())
	got := mustPublish(t, p).Warnings
	want := []string{`Entra ID does not accept tokens of key "p256"`, `Entra ID does not accept tokens of key "p384"`,
		`Google Cloud does not accept tokens of key "p384", whose algorithm is ES384. It accepts RS256 and ES256: change`}
	if len(got) != len(want) {
		t.Fatalf("got %q", got)
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("got %q, want %q", got[i], want[i])
		}
	}
}

// A Store would refuse to read a larger file.
func TestPublishWritesNoLargeFile(t *testing.T) {
	store := newMemory()
	key, err := es256(t, "key").MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var removed []string
	for i := range 880 {
		removed = append(removed,
			fmt.Sprintf(`{"key":%s,"removed":true}`, bytes.Replace(key, []byte(`"key"`), fmt.Appendf(nil, "\"%01000d\"", i), 1)))
	}
	store.put(issuer.RecordFile,
		fmt.Appendf(nil, `{"version":1,"issuer":%q,"keys":[%s]}`, issuerURL, strings.Join(removed, ",")))
	if size := len(store.files[issuer.RecordFile]); size > issuer.MaxFile || size < issuer.MaxFile-10_000 {
		t.Fatalf("%d bytes", size)
	}
	var shown []jose.JSONWebKey
	for i := range 10 {
		shown = append(shown, es256(t, strings.Repeat("x", 1000)+strconv.Itoa(i)))
	}
	_, err = newPublisher(newAPIServer(shown...), store).Publish(t.Context())
	testenv.CheckError(t, err, provider.ErrMisconfigured, "more than 1048576", "delete .workloadid/keys.json")
	if writes := store.takeWrites(); writes != nil {
		t.Errorf("wrote %q", writes)
	}
}

func mustJSON(value any) []byte {
	content, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return content
}

func TestStoreFaults(t *testing.T) {
	key, other := es256(t, "key"), es256(t, "other")
	foreign := []byte(`{"issuer":"https://oidc.example.com/cluster-2"}`)
	private := []byte(`{"keys":[{"kty":"EC","crv":"P-256","kid":"p","x":"AA","y":"AA","d":"AA"}]}`)
	for name, tc := range map[string]struct {
		files  map[string][]byte
		words  []string // of the error; none: what is stored is mended
		within []string // published keys
	}{
		"half a discovery document": {
			map[string][]byte{issuer.DiscoveryFile: []byte(`{"issuer":"https://oidc.ex`)}, nil, []string{"key"}},
		"half a key set": {map[string][]byte{issuer.KeysFile: marshalKeys(other)[:40]}, nil,
			[]string{"key"}},
		"a page in place of the key set": {map[string][]byte{issuer.KeysFile: []byte("<html>")}, nil, []string{"key"}},
		"half a record": {map[string][]byte{issuer.RecordFile: []byte(`{"version":1,"iss`)},
			[]string{issuer.RecordFile, "delete"}, nil},
		"a record of a later version": {
			map[string][]byte{issuer.RecordFile: []byte(`{"version":2,"issuer":"` + issuerURL + `"}`)},
			[]string{"version 2"}, nil},
		"a record of a foreign issuer": {
			map[string][]byte{issuer.RecordFile: []byte(`{"version":1,"issuer":"https://x"}`)},
			[]string{`"https://x"`, issuerURL}, nil},
		"a foreign issuer": {map[string][]byte{issuer.DiscoveryFile: foreign},
			[]string{`cluster-2"`, `cluster-1"`}, nil},
		"an issuer with a slash at the end": {
			map[string][]byte{issuer.DiscoveryFile: []byte(`{"issuer":"` + issuerURL + `/"}`)}, []string{`cluster-1/"`}, nil},
		"a discovery document without issuer": {map[string][]byte{issuer.DiscoveryFile: []byte(`{}`)}, []string{`""`}, nil},
		"a private key in the key set": {map[string][]byte{issuer.KeysFile: private},
			[]string{`"p"`, "private"}, nil},
		"an older discovery document": {
			map[string][]byte{issuer.DiscoveryFile: []byte(`{"issuer":"` + issuerURL + `","jwks_uri":"https://10.0.0.1"}`)}, nil,
			[]string{"key"}},
		"an ID that names another key: cluster": {map[string][]byte{issuer.KeysFile: marshalKeys(renamed(other, "key"))}, nil,
			[]string{"key"}},
	} {
		t.Run(name, func(t *testing.T) {
			store := newMemory()
			for path, content := range tc.files {
				store.put(path, content)
			}
			p := newPublisher(newAPIServer(key), store)
			_, err := p.Publish(t.Context())
			if tc.words == nil {
				if err != nil || !slices.Equal(store.published(t), tc.within) || mustPublish(t, p).Written != nil {
					t.Fatalf("error %v, published %q", err, store.published(t))
				}
				if !bytes.Contains(store.files[issuer.KeysFile], mustJSON(key)) {
					t.Errorf("the key of the cluster is not published: %s", store.files[issuer.KeysFile])
				}
				return
			}
			if !errors.Is(err, provider.ErrMisconfigured) || store.takeWrites() != nil {
				t.Fatalf("error %v; or it wrote", err)
			}
			for _, word := range tc.words {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("the error %q lacks %q", err, word)
				}
			}
		})
	}
}

func renamed(key jose.JSONWebKey, id string) jose.JSONWebKey {
	key.KeyID = id
	return key
}

func TestConflicts(t *testing.T) {
	key := es256(t, "key")
	t.Run("a crash between record and keys is mended", func(t *testing.T) {
		store := newMemory()
		crash := errors.New("crash")
		store.onWrite = func(path string) error {
			if path == issuer.KeysFile {
				return crash
			}
			return nil
		}
		p := newPublisher(newAPIServer(key), store)
		if _, err := p.Publish(t.Context()); !errors.Is(err, crash) {
			t.Fatal(err)
		}
		store.onWrite = nil
		mustPublish(t, p)
		store.expect(t, "key")
	})
	t.Run("a store that always conflicts is given up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store, tries := newMemory(), 0
			store.onWrite = func(string) error { tries++; return fmt.Errorf("409: %w", issuer.ErrChanged) }
			start := time.Now()
			_, err := newPublisher(newAPIServer(key), store).Publish(t.Context())
			if !errors.Is(err, issuer.ErrChanged) || !errors.Is(err, provider.ErrUnavailable) || tries < 3 || tries > 10 ||
				time.Since(start) > time.Minute {
				t.Errorf("%d tries in %s: %v", tries, time.Since(start), err)
			}
		})
	})
	t.Run("a store that always answers an old record writes no keys", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := newMemory()
			server := newAPIServer(key)
			p := newPublisher(server, store)
			mustPublish(t, p)
			server.show(key, es256(t, "next"))
			store.takeWrites()
			store.onRead = func(path string, content []byte, version string, err error) ([]byte, string, error) {
				if path == issuer.RecordFile {
					return content, "0", err
				}
				return content, version, err
			}
			if _, err := p.Publish(t.Context()); !errors.Is(err, issuer.ErrChanged) || store.takeWrites() != nil {
				t.Errorf("error %v", err)
			}
		})
	})
}

// Two publishers see different API servers, and a third removes a key.
func TestPublishersRace(t *testing.T) {
	keys := make([]jose.JSONWebKey, 12)
	for i := range keys {
		keys[i] = es256(t, fmt.Sprintf("key-%02d", i))
	}
	store := newMemory()
	var group sync.WaitGroup
	run := func(p *issuer.Publisher, each func(ctx context.Context, p *issuer.Publisher, i int) error) {
		group.Go(func() {
			for i := range keys {
				if err := each(t.Context(), p, i); err != nil && !errors.Is(err, issuer.ErrChanged) {
					t.Error(err)
				}
			}
		})
	}
	for _, order := range [][]jose.JSONWebKey{keys, reversed(keys)} {
		server := newAPIServer(order[0])
		run(newPublisher(server, store), func(ctx context.Context, p *issuer.Publisher, i int) error {
			server.show(order[:i+1]...)
			_, err := p.Publish(ctx)
			return err
		})
	}
	removing := newPublisher(newAPIServer(keys...), store)
	run(removing, func(ctx context.Context, p *issuer.Publisher, i int) error {
		if i != 5 {
			return nil
		}
		_, err := p.RemoveKey(ctx, "key-03")
		return err
	})
	group.Wait()
	mustPublish(t, removing)
	want := []string{}
	for _, key := range keys {
		if key.KeyID != "key-03" {
			want = append(want, key.KeyID)
		}
	}
	store.expect(t, want...)
}

func reversed(keys []jose.JSONWebKey) []jose.JSONWebKey {
	keys = slices.Clone(keys)
	slices.Reverse(keys)
	return keys
}

func TestAnswersOfTheAPIServer(t *testing.T) {
	key := es256(t, "key")
	many := make([]jose.JSONWebKey, 101)
	for i := range many {
		many[i] = renamed(key, fmt.Sprint("key-", i))
	}
	for name, tc := range map[string]struct {
		status int
		body   []byte
		words  string
		reason provider.Reason
	}{
		"503": {http.StatusServiceUnavailable, nil, "503", provider.ErrUnavailable},
		"401": {http.StatusUnauthorized, []byte("hunter2"), "401", provider.ErrDenied},
		"403 names the role": {http.StatusForbidden, nil, "system:service-account-issuer-discovery",
			provider.ErrDenied},
		"404 names the cause": {http.StatusNotFound, nil, "https URL", provider.ErrMisconfigured},
		"a redirect":          {http.StatusFound, nil, "302", provider.ErrUnavailable},
		"no JSON":             {http.StatusOK, []byte("<html>hunter2</html>"), "no JSON", provider.ErrUnavailable},
		"a list":              {http.StatusOK, []byte("[]"), "no JSON Web Key Set", provider.ErrUnavailable},
		"no keys":             {http.StatusOK, []byte(`{"keys":[]}`), "no keys", provider.ErrUnavailable},
		"two answers": {http.StatusOK, append(marshalKeys(key), marshalKeys(key)...), "no JSON",
			provider.ErrUnavailable},
		"oversized": {http.StatusOK, bytes.Repeat([]byte(" "), issuer.MaxFile+1), "1048576",
			provider.ErrUnavailable},
		"too many keys":           {http.StatusOK, marshalKeys(many...), "101", provider.ErrMisconfigured},
		"the same ID twice":       {http.StatusOK, marshalKeys(key, key), `"key"`, provider.ErrMisconfigured},
		"an ID with a line break": {http.StatusOK, marshalKeys(renamed(key, "a\nb")), `"a\nb"`, provider.ErrMisconfigured},
		"an ID read backwards": {http.StatusOK, marshalKeys(renamed(key, "a\u202eb")), "visible ones of ASCII",
			provider.ErrMisconfigured},
		"no ID": {http.StatusOK, marshalKeys(renamed(key, "")), "no ID", provider.ErrMisconfigured},
		"a long ID": {http.StatusOK, marshalKeys(renamed(key, strings.Repeat("k", 1025))), "1024",
			provider.ErrMisconfigured},
		"an RSA key of 1024 bits": {http.StatusOK, marshalKeys(rs256(t, "short", 1024)), `"short"`,
			provider.ErrMisconfigured},
		"another algorithm": {http.StatusOK, marshalKeys(ecKey(t, "alg", elliptic.P256(), "ES384")), `"ES384"`,
			provider.ErrMisconfigured},
		"an encryption key": {http.StatusOK, bytes.Replace(marshalKeys(key), []byte(`"sig"`), []byte(`"enc"`), 1),
			`"enc"`, provider.ErrMisconfigured},
		"a symmetric key": {http.StatusOK, []byte(`{"keys":[{"kty":"oct","kid":"s","k":"c2VjcmV0"}]}`), `"s"`,
			provider.ErrMisconfigured},
		"an Ed25519 key": {http.StatusOK,
			[]byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"ed","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`),
			`"ed"`, provider.ErrMisconfigured},
		"a private member": {http.StatusOK,
			bytes.Replace(marshalKeys(key), []byte(`"kty"`), []byte(`"d":"c2VjcmV0","kty"`), 1), "private",
			provider.ErrMisconfigured},
		"a prime of an RSA key": {http.StatusOK,
			bytes.Replace(marshalKeys(rs256(t, "rsa", 2048)), []byte(`"kty"`), []byte(`"p":"c2VjcmV0","kty"`), 1), "private",
			provider.ErrMisconfigured},
		"a point beside the curve": {http.StatusOK,
			[]byte(
				`{"keys":[{"kty":"EC","crv":"P-256","kid":"off","x":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE","y":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE"}]}`), `"off"`, provider.ErrMisconfigured},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, store := newAPIServer(), newMemory()
				server.answer(tc.status, tc.body)
				_, err := newPublisher(server, store).Publish(t.Context())
				if !errors.Is(err, tc.reason) || !strings.Contains(err.Error(), tc.words) ||
					strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "c2VjcmV0") {
					t.Errorf("error %v, want one with %q and without secrets", err, tc.words)
				}
				if store.takeWrites() != nil {
					t.Error("something was written")
				}
			})
		})
	}
}

func TestFieldsAreChecked(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(p *issuer.Publisher)
		words  string
	}{
		"no Cluster":           {func(p *issuer.Publisher) { p.Cluster = nil }, "Cluster"},
		"no Store":             {func(p *issuer.Publisher) { p.Store = nil }, "Store"},
		"no Issuer":            {func(p *issuer.Publisher) { p.Issuer = "" }, "https://"},
		"http":                 {func(p *issuer.Publisher) { p.Issuer = "http://x" }, `"http://x"`},
		"query":                {func(p *issuer.Publisher) { p.Issuer = "https://x/?" }, "query"},
		"fragment":             {func(p *issuer.Publisher) { p.Issuer = "https://x/#a" }, "fragment"},
		"user name":            {func(p *issuer.Publisher) { p.Issuer = "https://user:secret@x" }, "user"},
		"no host":              {func(p *issuer.Publisher) { p.Issuer = "https:///x" }, "host"},
		"negative lifetime":    {func(p *issuer.Publisher) { p.MaxTokenLifetime = -1 }, "MaxTokenLifetime"},
		"lifetime of a minute": {func(p *issuer.Publisher) { p.MaxTokenLifetime = time.Minute }, "MaxTokenLifetime"},
		"lifetime of 101 years": {func(p *issuer.Publisher) {
			p.MaxTokenLifetime = 101 * 365 * 24 * time.Hour
		}, "MaxTokenLifetime"},
		"letters that turn text": {func(p *issuer.Publisher) { p.Issuer = "https://x/\u202e" }, "characters"},
		"key ID to remove is \"": {func(*issuer.Publisher) {}, "ID"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPublisher(newAPIServer(es256(t, "key")), newMemory())
			tc.change(p)
			_, err := p.RemoveKey(t.Context(), "")
			if !errors.Is(err, provider.ErrMisconfigured) || !strings.Contains(err.Error(), tc.words) ||
				strings.Contains(err.Error(), "hunter2") {
				t.Errorf("error %v, want one with %q", err, tc.words)
			}
		})
	}
}

// slowStore has the documents of an object store that hangs.
type slowStore struct {
	*memory
	server *slowserver.Client
}

func (s slowStore) Write(ctx context.Context, path string, _ []byte, _ string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, s.server.URL+"/"+path, http.NoBody)
	if err != nil {
		return err
	}
	response, err := s.server.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return fmt.Errorf("%s: %w", response.Status, issuer.ErrChanged)
}

func TestPublishReportsAWriteThatTimesOut(t *testing.T) {
	key := es256(t, "key")
	slowserver.Test(t, nil, func(t *testing.T, server *slowserver.Client) error {
		_, err := newPublisher(newAPIServer(key), slowStore{newMemory(), server}).Publish(t.Context())
		return err
	})
}
