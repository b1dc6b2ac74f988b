package credentials

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/auth/plugin"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cache/disk"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/providers"
)

// credential holds the result of a command in a form that disks can keep.
type credential struct {
	// Identity names the principal at the provider. It is no secret.
	Identity string `json:",omitempty"`
	// GitCredential has the user, the password or the bearer token of clusters and registries too, and the expiry of all credentials.
	plugin.GitCredential
	Keys    plugin.ProcessCredentials
	IDToken string `json:",omitempty"`

	// Refused is set instead of all the rest if the provider has refused the exchange.
	Refused *auth.Error `json:",omitempty"`
}

// Format keeps secrets out of accidental output.
func (c *credential) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("credential, redacted")) }

// get returns the credential from disk, or has it minted.
func (id *Identity) get(ctx context.Context, s *source, r request) (*credential, error) {
	store, err := id.store(s)
	if err != nil {
		return nil, err
	}
	if store == nil {
		return r.mint(ctx, s.opts)
	}
	defer store.Close() //nolint:errcheck // nothing is lost
	var mintErr error
	entry, err := store.GetOrMint(ctx, id.key(s, r), func(ctx context.Context) (disk.Entry, error) {
		var c *credential
		if c, mintErr = r.mint(ctx, s.opts); mintErr != nil {
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
		return nil, brokenCache(err)
	}
	if c.Refused != nil {
		c.Refused.Operation = strings.TrimPrefix(c.Refused.Operation+", a few seconds ago", ", ")
		return nil, c.Refused
	}
	return c, nil
}

// invalidate drops what a service has refused, so that the next call mints.
func (id *Identity) invalidate(s *source, r request) error {
	store, err := id.store(s)
	if err != nil || store == nil {
		return err
	}
	defer store.Close() //nolint:errcheck // nothing is lost
	return brokenCache(store.Invalidate(id.key(s, r)))
}

func brokenCache(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &auth.Error{Reason: auth.ErrUnavailable, Operation: "use the cache on disk", Message: "another call used it all the time", Err: err}
	}
	return &auth.Error{Reason: auth.ErrMisconfigured, Operation: "use the cache on disk", Message: cli.OneLine(err.Error()), Err: err,
		Remedy: "or pass --cache-dir or --no-cache"}
}

// store opens the cache, if there is one for this source. There is none for a token in hand that has expired: the library
// refuses the token, and says why.
func (id *Identity) store(s *source) (*disk.Cache, error) {
	if id.noCache || s.key == "" || !s.expires.IsZero() && !s.expires.After(time.Now()) {
		return nil, nil
	}
	dir, err := id.directory()
	if err != nil {
		id.warnOfNoCache(err)
		return nil, nil
	}
	store, err := disk.Open(dir)
	if id.cacheDir == "" && errors.Is(err, disk.ErrUnsupported) {
		id.warnOfNoCache(err)
		return nil, nil
	}
	if err != nil {
		return nil, brokenCache(err)
	}
	store.Permanent = providers.Permanent
	return store, nil
}

func (id *Identity) warnOfNoCache(err error) {
	id.warn("nothing is kept on disk, so every call makes an exchange: %v; name a directory with --cache-dir, "+
		"or pass --no-cache if that is meant", err)
}

// directory returns the directory of the cache. Without --cache-dir and a home directory it returns an error.
func (id *Identity) directory() (string, error) {
	if id.cacheDir != "" {
		return id.cacheDir, nil
	}
	base, err := os.UserCacheDir()
	if err == nil && !filepath.IsAbs(base) {
		err = fmt.Errorf("the user's cache directory %.300q is not absolute", base)
	}
	return filepath.Join(base, "workloadid"), err
}

// shaping are the variables that providers read for ServiceAccounts too.
var shaping = []struct {
	name, provider string
	isPath         bool
}{
	{"AWS_REGION", aws.ProviderName, false},
	{"AZURE_TENANT_ID", azure.ProviderName, false},
	{"AZURE_AUTHORITY_HOST", azure.ProviderName, false},
	{"AZURE_ENVIRONMENT_FILEPATH", azure.ProviderName, true},
	{"GCE_METADATA_HOST", gcp.ProviderName, false},
}

// key is the hash of everything that shapes the credential. Quotes keep the parts apart, also those that are not UTF-8.
func (id *Identity) key(s *source, r request) cache.Key {
	secret, _ := id.clientSecret() // the exchange reports the error
	parts := []any{"2", s.key, r.kind, r.provider.GetName(), r.target, secret}
	for _, f := range id.Settings() {
		if id.changed(f.Name) && f.marks&aboutSource == 0 {
			parts = append(parts, f.Name, valueOf(id.Flags.Lookup(f.Name)))
		}
	}
	for _, v := range shaping {
		value, content := os.Getenv(v.name), []byte(nil)
		if v.isPath && value != "" {
			content, _ = cli.ReadBounded(value) // the provider reports the error
		}
		parts = append(parts, v.name, value, content)
	}
	return sha256.Sum256(fmt.Appendf(nil, "%q", parts))
}

// valueOf returns the value of a flag, a list or a string.
func valueOf(f *pflag.Flag) any {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return list.GetSlice()
	}
	return f.Value.String()
}

// refusalLife is the lifetime of a kept refusal. It limits programs that call their plugin in a loop.
const refusalLife = 5 * time.Second

// refusedBy returns the refusal to keep in place of a credential. It returns nil for errors that a retry may cure or that cost no request.
func refusedBy(err error) *credential {
	var e *auth.Error
	if !errors.As(err, &e) || !providers.Permanent(e) || e.StatusCode == 0 {
		return nil
	}
	return &credential{GitCredential: plugin.GitCredential{Expires: time.Now().Add(refusalLife)}, Refused: e}
}
