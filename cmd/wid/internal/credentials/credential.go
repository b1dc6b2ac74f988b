package credentials

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cache/disk"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// credential holds the result of a command in a form that disks can keep.
type credential struct {
	Provider string
	// Identity names the principal at the provider. It is no secret.
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

// Format keeps secrets out of accidental output.
func (c *credential) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("credential, redacted")) }

// request describes the wanted credential. All of it is part of the key.
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
func (id *Identity) get(ctx context.Context, s *Source, r request, mint minter) (*credential, error) {
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
func (id *Identity) invalidate(s *Source, r request) error {
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
	e := &auth.Error{Reason: auth.ErrMisconfigured, Operation: "use the cache on disk", Message: cli.OneLine(err.Error()), Err: err,
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
func (id *Identity) store(s *Source, r request) (*disk.Cache, cache.Key, error) {
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

// directory returns the directory of the cache. Without --cache-dir and a home directory it returns an error.
func (id *Identity) directory() (string, error) {
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

// variable is one of the environment that a provider looks at for ServiceAccounts.
type variable struct {
	name, provider string
	// flag says the same, if there is one.
	flag string
	path bool
}

var shaping = []variable{
	{name: "AWS_REGION", provider: aws.ProviderName, flag: "region"},
	{name: "AZURE_TENANT_ID", provider: azure.ProviderName},
	{name: "AZURE_AUTHORITY_HOST", provider: azure.ProviderName, flag: "authority-host"},
	{name: "AZURE_ENVIRONMENT_FILEPATH", provider: azure.ProviderName, path: true},
	{name: "GCE_METADATA_HOST", provider: gcp.ProviderName},
}

// key is the hash of a JSON document, which keeps its parts apart.
func (id *Identity) key(s *Source, r request) (cache.Key, error) {
	document := struct {
		Version     int
		Request     request
		Source      *sourceKey
		Flags       map[string]any
		Environment map[string]string
		Files       map[string]string
	}{1, r, s.key, map[string]any{}, map[string]string{}, map[string]string{}}
	for _, target := range r.Target {
		if !utf8.ValidString(target) { // JSON encodes two such targets alike
			return cache.Key{}, cli.Usagef("%.100q is not UTF-8", target)
		}
	}
	values := id.flagValues()
	for _, f := range id.Settings() {
		value, ok := values[f.Name]
		switch {
		case !ok || f.marks&aboutSource != 0:
			continue
		case f.marks&shapesByContent != 0:
			content, _ := id.clientSecret() // as in fileSum
			document.Files[f.Name] = hex.EncodeToString(sum(string(content)))
		}
		document.Flags[f.Name] = value
	}
	for _, v := range shaping {
		value := os.Getenv(v.name)
		document.Environment[v.name] = value
		if v.path && value != "" {
			document.Files[v.name] = fileSum(value)
		}
	}
	content, err := json.Marshal(document)
	return sha256.Sum256(content), err
}

// fileSum returns the hash of a file's content. A file that cannot be read counts as empty here; its user reports the error.
func fileSum(name string) string {
	if name == "" {
		return ""
	}
	content, _ := cli.ReadBounded(name) // see above
	return hex.EncodeToString(sum(string(content)))
}

func sum(s string) []byte {
	h := sha256.Sum256([]byte(s))
	return h[:]
}

// refusalLife is the lifetime of a kept refusal. It limits programs that call their plugin in a loop.
const refusalLife = 5 * time.Second

// refusal holds a provider's answer to an exchange, without secrets.
type refusal struct {
	Reason              auth.Reason
	Provider, Operation string
	ServiceAccount      client.ObjectKey
	Message, Remedy     string
	Option              string
	Code                string
	StatusCode          int
}

// refusedBy returns the refusal to keep in place of a credential. It returns nil for errors that a retry may cure or that cost no request.
func refusedBy(err error) *credential {
	var e *auth.Error
	if !errors.As(err, &e) || !e.Permanent() || e.StatusCode == 0 {
		return nil
	}
	r := &refusal{Reason: e.Reason, Provider: e.Provider, Operation: e.Operation, ServiceAccount: e.ServiceAccount,
		Message: e.Message, Remedy: e.Remedy, Option: e.Option, Code: e.Code, StatusCode: e.StatusCode}
	return &credential{Provider: e.Provider, Expires: time.Now().Add(refusalLife), Refused: r}
}

func (r *refusal) err() error {
	return &auth.Error{Reason: r.Reason, Provider: r.Provider, ServiceAccount: r.ServiceAccount,
		Operation: strings.TrimPrefix(r.Operation+", a few seconds ago", ", "),
		Message:   r.Message, Remedy: r.Remedy, Option: r.Option, Code: r.Code, StatusCode: r.StatusCode}
}
