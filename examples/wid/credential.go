package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cache/disk"
)

// credential is what the commands hand out, in a form that can be kept on disk.
type credential struct {
	Provider string
	// Identity is what it stands for at the provider, no secret.
	Identity string `json:",omitempty"`
	// Expires is zero if it does not.
	Expires time.Time

	Username     string `json:",omitempty"`
	Password     string `json:",omitempty"`
	Token        string `json:",omitempty"`
	AccessKeyID  string `json:",omitempty"`
	SecretKey    string `json:",omitempty"`
	SessionToken string `json:",omitempty"`
	AccountID    string `json:",omitempty"`
}

// Format keeps the secrets out of whatever prints by accident.
func (c *credential) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("credential, redacted")) }

// request is what a command wants. All of it is part of the key, and so is everything else that shapes the credential.
type request struct {
	// Kind is access-token, registry, git or cluster.
	Kind string
	// Provider is empty if the host decides.
	Provider string
	// Target is the registry, the repository or the cluster.
	Target []string
}

// minter gets the credential from the library.
type minter func(ctx context.Context, opts []auth.Option) (*credential, error)

// get returns the credential from disk, or has it minted.
func (id *identity) get(ctx context.Context, s *source, r request, mint minter) (*credential, error) {
	store, key, err := id.store(s, r)
	if err != nil {
		return nil, err
	}
	if store == nil {
		return mint(ctx, s.opts)
	}
	defer store.Close() //nolint:errcheck // nothing is lost
	var mintErr error
	entry, err := store.GetOrMint(ctx, key, func(ctx context.Context) (disk.Entry, error) {
		var c *credential
		if c, mintErr = mint(ctx, s.opts); mintErr != nil {
			return disk.Entry{}, mintErr
		}
		data, err := json.Marshal(c) //nolint:gosec // the cache is where secrets are kept
		return disk.Entry{Data: data, Expires: c.Expires}, err
	})
	switch {
	case errors.Is(err, disk.ErrNotKept):
		id.warn("%v", err)
	case err != nil && mintErr == nil:
		return nil, brokenCache(err)
	case err != nil:
		return nil, mintErr
	}
	c := &credential{}
	if err := json.Unmarshal(entry.Data, c); err != nil {
		return nil, brokenCache(errors.New("it holds something of another version"))
	}
	return c, nil
}

// reject drops what a service has refused, so that the next call mints.
func (id *identity) reject(s *source, r request) error {
	store, key, err := id.store(s, r)
	if err != nil || store == nil {
		return err
	}
	defer store.Close() //nolint:errcheck // nothing is lost
	if err := store.Reject(key); err != nil {
		return brokenCache(err)
	}
	return nil
}

func brokenCache(err error) error {
	e := &auth.Error{Reason: auth.ErrMisconfigured, Operation: "use the cache on disk", Message: oneLine(err.Error()), Err: err,
		Remedy: "or pass --cache-dir or --no-cache"}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		e.Reason, e.Message, e.Remedy = auth.ErrUnavailable, "another wid has been getting the same credential all the time",
			"see what that one waits for, or pass --timeout"
	}
	return e
}

// store opens the cache, if there is one for this source.
func (id *identity) store(s *source, r request) (*disk.Cache, cache.Key, error) {
	if id.noCache || s.key == nil {
		return nil, cache.Key{}, nil
	}
	dir := id.cacheDir
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return nil, cache.Key{}, nil //nolint:nilerr // a daemon without a home keeps nothing, unless told where
		}
		dir = filepath.Join(base, "workloadid")
	}
	key, err := id.key(s, r)
	if err != nil {
		return nil, key, err
	}
	store, err := disk.Open(dir)
	if err != nil {
		return nil, key, brokenCache(err)
	}
	return store, key, nil
}

// shaping are the variables of the environment that the providers look at for ServiceAccounts.
var shaping = []string{"AWS_REGION", "AZURE_TENANT_ID", "AZURE_AUTHORITY_HOST", "AZURE_ENVIRONMENT_FILEPATH",
	"GCE_METADATA_HOST"}

// unshaping are the flags that do not change what a credential is. What they say of the source is in its own key.
var unshaping = []string{"cache-dir", "no-cache", "timeout", "kubeconfig", "context", "in-cluster", "token-file", "token-stdin",
	"annotation", "service-account", "provider"}

// key is the hash of a JSON document, which keeps its parts apart.
func (id *identity) key(s *source, r request) (cache.Key, error) {
	document := struct {
		Version     int
		Request     request
		Source      *sourceKey
		Flags       map[string]any
		Environment map[string]string
	}{1, r, s.key, map[string]any{}, map[string]string{}}
	for name, value := range id.flagValues() {
		if !slices.Contains(unshaping, name) {
			document.Flags[name] = value
		}
	}
	for _, name := range shaping {
		document.Environment[name] = os.Getenv(name)
	}
	if file := os.Getenv("AZURE_ENVIRONMENT_FILEPATH"); file != "" {
		content, _ := readBounded(file) // the caller's own environment; the provider tells if it cannot be read
		document.Environment["AZURE_ENVIRONMENT"] = hex.EncodeToString(sum(string(content)))
	}
	content, err := json.Marshal(document)
	return sha256.Sum256(content), err
}

func sum(s string) []byte {
	h := sha256.Sum256([]byte(s))
	return h[:]
}
