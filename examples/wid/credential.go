package main

import (
	"context"
	"crypto/sha256"
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

// get returns the credential from disk, or has it minted. rejected tells that a service has refused the one on disk.
func (id *identity) get(ctx context.Context, s *source, r request, mint minter) (*credential, error) {
	var minted *credential
	mintEntry := func(ctx context.Context) (disk.Entry, error) {
		var err error
		if minted, err = mint(ctx, s.opts); err != nil {
			return disk.Entry{}, err
		}
		data, err := json.Marshal(minted)
		return disk.Entry{Data: data, Expires: minted.Expires}, err
	}
	store, key, err := id.store(s, r)
	if err != nil {
		return nil, err
	}
	if store == nil {
		_, err := mintEntry(ctx)
		return minted, err
	}
	defer store.Close() //nolint:errcheck // nothing is lost
	entry, err := store.GetOrMint(ctx, key, mintEntry)
	switch {
	case errors.Is(err, disk.ErrNotKept) && minted != nil:
		id.warn("%v", err)
		return minted, nil
	case errors.Is(err, disk.ErrRefused):
		return nil, refusedCache(err)
	case err != nil:
		return nil, err
	}
	kept := &credential{}
	if err := json.Unmarshal(entry.Data, kept); err != nil {
		return nil, fmt.Errorf("what the cache holds is of another version; pass --no-cache or another --cache-dir")
	}
	return kept, nil
}

// reject drops what a service has refused, so that the next call mints.
func (id *identity) reject(s *source, r request) error {
	store, key, err := id.store(s, r)
	if err != nil || store == nil {
		return err
	}
	defer store.Close() //nolint:errcheck // nothing is lost
	if err := store.Reject(key); err != nil {
		return refusedCache(err)
	}
	return nil
}

func refusedCache(err error) error {
	return &auth.Error{Reason: auth.ErrMisconfigured, Operation: "keep the credential", Message: err.Error(), Err: err,
		Remedy: "or pass --cache-dir or --no-cache"}
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
		return nil, key, refusedCache(err)
	}
	return store, key, nil
}

// shaping are the variables of the environment that the providers look at for ServiceAccounts.
var shaping = []string{"AWS_REGION", "AZURE_TENANT_ID", "AZURE_AUTHORITY_HOST", "AZURE_ENVIRONMENT_FILEPATH", "AZURE_ENVIRONMENT",
	"GCE_METADATA_HOST", "GOOGLE_CLOUD_UNIVERSE_DOMAIN"}

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
	content, err := json.Marshal(document)
	return sha256.Sum256(content), err
}

func sum(s string) []byte {
	h := sha256.Sum256([]byte(s))
	return h[:]
}
