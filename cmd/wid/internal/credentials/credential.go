package credentials

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/auth/plugin"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cache/disk"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/input"
)

// credential holds the result of a command in a form that disks can keep.
type credential struct {
	// Identity names the principal at the provider. It is not secret.
	Identity string `json:",omitempty"`
	// GitCredential has the user, the password or the bearer token of clusters
	// and registries too, and the expiry of all credentials.
	plugin.GitCredential
	Keys    plugin.ProcessCredentials
	IDToken string `json:",omitempty"`
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
			return disk.Entry{}, mintErr
		}
		data, err := json.Marshal(c) //nolint:gosec // the cache is where secrets are kept
		return disk.Entry{Data: data, Expires: c.Expires}, err
	})
	switch {
	case mintErr != nil && err != nil: // without it, an earlier credential is still good
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
		return &auth.Error{Reason: auth.ErrUnavailable, Operation: "use the cache on disk",
			Message: "another call used it all the time", Err: err}
	}
	return &auth.Error{Reason: auth.ErrMisconfigured, Operation: "use the cache on disk",
		Message: cli.OneLine(err.Error()), Err: err,
		Remedy: "or pass --cache-dir or --no-cache"}
}

// store opens the cache, if there is one for this source. There is none for a
// token in hand that has expired: the library refuses the token, and says why.
func (id *Identity) store(s *source) (*disk.Cache, error) {
	if id.noCache || s.key == "" || !s.expires.IsZero() && !s.expires.After(time.Now()) {
		return nil, nil
	}
	dir, err := id.cacheDir, error(nil)
	if dir == "" {
		if dir, err = os.UserCacheDir(); err == nil && !filepath.IsAbs(dir) {
			err = fmt.Errorf("the user's cache directory %.300q is not absolute", dir)
		}
		dir = filepath.Join(dir, "workloadid")
	}
	homeless, store := err != nil, (*disk.Cache)(nil)
	if !homeless {
		store, err = disk.Open(dir)
	}
	switch {
	case homeless || id.cacheDir == "" && errors.Is(err, disk.ErrUnsupported):
		id.warn("nothing is kept on disk, so every call makes an exchange: %v; name a directory with --cache-dir, "+
			"or pass --no-cache if that is meant", err)
		return nil, nil //nolint:nilerr // a cache is a convenience
	case err != nil:
		return nil, brokenCache(err)
	}
	store.Permanent = provider.Permanent
	return store, nil
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

// key is the hash of everything that shapes the credential. Quotes keep the
// parts apart, also those that are not UTF-8.
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
			content, _ = input.ReadFile(value) // the provider reports the error
		}
		parts = append(parts, v.name, value, content)
	}
	return sha256.Sum256(fmt.Appendf(nil, "%q", parts))
}

func valueOf(f *pflag.Flag) any {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return list.GetSlice()
	}
	return f.Value.String()
}

// NewToken returns wid token.
func (a *App) NewToken() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Get an access token or credentials of a provider",
		Long: "Get an access token or credentials of a provider for a ServiceAccount. Without one it uses wid's own identity.\n" +
			"Secrets are shown with --reveal only.",
		Example: "  wid token --service-account tenant-a/app --region eu-central-1\n" +
			"  keys=$(wid token --service-account tenant-a/app --region eu-central-1 -o env --reveal) && eval \"$keys\"\n" +
			"  wid token --provider generic --service-account tenant-a/app --audience vault -o json --reveal",
	}
	o := cli.OutputFlag(cmd, "table", "json", "yaml", "env")
	reveal := cmd.Flags().Bool("reveal", false, "show secrets")
	return a.command(cmd, func(ctx context.Context, id *Identity, _ []string) ([]byte, error) {
		if o.Format == "env" && !*reveal {
			return nil, cli.Usagef("--output env is made of secrets: add --reveal")
		}
		s, p, err := id.resolveNamed(ctx)
		if err != nil {
			return nil, err
		}
		c, err := id.get(ctx, s, forAccess(p))
		if err != nil {
			return nil, err
		}
		if c.Identity == "" && s.account != nil {
			c.Identity, _ = p.GetIdentity(s.account, &provider.Options{}) // the token shows that it is valid
		}
		return c.print(p.GetName(), s.account, o, *reveal)
	})
}

// value is a part of a credential. Its name is the environment variable that
// tools read.
type value struct {
	name, text string
	secret     bool
}

func (c *credential) values(provider string) []value {
	variable := map[string]string{azure.ProviderName: "AZURE_ACCESS_TOKEN",
		gcp.ProviderName: "CLOUDSDK_AUTH_ACCESS_TOKEN"}[provider]
	return slices.DeleteFunc([]value{
		{"AWS_ACCESS_KEY_ID", c.Keys.AccessKeyID, false},
		{"AWS_SECRET_ACCESS_KEY", c.Keys.SecretAccessKey, true},
		{"AWS_SESSION_TOKEN", c.Keys.SessionToken, true},
		{cmp.Or(variable, "WID_TOKEN"), c.BearerToken, true},
		{"WID_ID_TOKEN", c.IDToken, true},
	}, func(v value) bool { return v.text == "" })
}

// shown is the output of wid token.
type shown struct {
	Provider       string            `json:"provider"`
	ServiceAccount string            `json:"serviceAccount,omitempty"`
	Identity       string            `json:"identity,omitempty"`
	AccountID      string            `json:"accountID,omitempty"`
	Expires        *time.Time        `json:"expires,omitempty"`
	Values         map[string]string `json:"values"`
	// Redacted are the names of values that --reveal would show.
	Redacted []string `json:"redacted,omitempty"`
}

func (c *credential) print(provider string, sa *corev1.ServiceAccount, o *cli.Output, reveal bool) ([]byte, error) {
	out := &shown{Provider: provider, Identity: c.Identity, AccountID: c.Keys.AccountID, Values: map[string]string{}}
	expires := "never"
	if sa != nil {
		out.ServiceAccount = client.ObjectKeyFromObject(sa).String()
	}
	if !c.Expires.IsZero() {
		end := c.Expires.UTC().Truncate(time.Second)
		out.Expires, expires = &end, fmt.Sprintf("%s (in %s)", end.Format(time.RFC3339), time.Until(end).Round(time.Second))
	}
	rows := [][]string{{"provider", out.Provider}, {"ServiceAccount", out.ServiceAccount}, {"identity", out.Identity},
		{"account", out.AccountID}, {"expires", expires}}
	var env bytes.Buffer
	for _, v := range c.values(provider) {
		if v.secret && !reveal {
			out.Redacted = append(out.Redacted, v.name)
			rows = append(rows, []string{v.name, "[redacted, see --reveal]"})
			continue
		}
		out.Values[v.name] = v.text
		rows = append(rows, []string{v.name, v.text})
		// a bytes.Buffer never fails
		_, _ = fmt.Fprintf(&env, "export %s='%s'\n", v.name, strings.ReplaceAll(v.text, "'", `'\''`))
	}
	if o.Format == "env" {
		return env.Bytes(), nil
	}
	return o.Encode(out, func(w io.Writer) {
		for _, row := range rows {
			if row[1] != "" {
				cli.Row(w, row...)
			}
		}
	})
}
