package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	IDToken      string `json:",omitempty"`
	AccessKeyID  string `json:",omitempty"`
	SecretKey    string `json:",omitempty"`
	SessionToken string `json:",omitempty"`
	AccountID    string `json:",omitempty"`

	// Refused is set instead of all the rest if the provider has refused the exchange.
	Refused *refusal `json:",omitempty"`
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
			if c = refusedBy(mintErr); c == nil {
				return disk.Entry{}, mintErr
			}
		}
		data, err := json.Marshal(c) //nolint:gosec // the cache is where secrets are kept
		return disk.Entry{Data: data, Expires: c.Expires}, err
	})
	switch {
	case mintErr != nil && (err != nil || refusedBy(mintErr) != nil):
		return nil, mintErr
	case errors.Is(err, disk.ErrNotKept):
		id.warn("%v", err)
	case err != nil:
		return nil, brokenCache(err)
	}
	c := &credential{}
	if err := json.Unmarshal(entry.Data, c); err != nil {
		return nil, brokenCache(errors.New("it holds something of another version"))
	}
	if c.Refused != nil {
		return nil, c.Refused.err()
	}
	return c, nil
}

// invalidate drops what a service has refused, so that the next call mints.
func (id *identity) invalidate(s *source, r request) error {
	store, key, err := id.store(s, r)
	if err != nil || store == nil {
		return err
	}
	defer store.Close() //nolint:errcheck // nothing is lost
	if err := store.Invalidate(key); err != nil {
		return brokenCache(err)
	}
	return nil
}

func brokenCache(err error) error {
	e := &auth.Error{Reason: auth.ErrMisconfigured, Operation: "use the cache on disk", Message: oneLine(err.Error()), Err: err,
		Remedy: "or pass --cache-dir or --no-cache"}
	if errors.Is(err, disk.ErrUnsupported) {
		e.Remedy = "pass --no-cache"
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		e.Reason, e.Message, e.Remedy = auth.ErrUnavailable, "the time was over before it was this call's turn",
			"give it more time with --timeout"
	}
	return e
}

// store opens the cache, if there is one for this source. There is none for a token in hand that has expired: the library
// refuses the token, and says why.
func (id *identity) store(s *source, r request) (*disk.Cache, cache.Key, error) {
	if id.noCache || s.key == nil || s.key.TokenSHA256 != nil && !s.expires.After(time.Now()) {
		return nil, cache.Key{}, nil
	}
	dir, err := id.directory()
	if err != nil {
		id.warn("nothing is kept on disk, so every call makes an exchange: %v; name a directory with --cache-dir, "+
			"or pass --no-cache if that is meant", err)
		return nil, cache.Key{}, nil
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

// directory is where the cache lies. Without a home directory there is none, unless somebody says where.
func (id *identity) directory() (string, error) {
	switch {
	case id.cacheDir != "":
		return id.cacheDir, nil
	case !disk.Supported():
		return "", disk.ErrUnsupported
	}
	base, err := os.UserCacheDir()
	if err == nil && !filepath.IsAbs(base) {
		err = fmt.Errorf("the user's cache directory %.300q is not absolute", base)
	}
	return filepath.Join(base, "workloadid"), err
}
