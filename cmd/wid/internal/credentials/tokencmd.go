package credentials

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/auth/token"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// NewToken returns wid token.
func (a *App) NewToken() *cobra.Command {
	var reveal bool
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Get an access token or credentials of a provider",
		Long: "Get an access token or credentials of a provider for a ServiceAccount. Without one it uses wid's own identity.\n" +
			"Secrets are shown with --reveal only.",
		Example: "  wid token --service-account tenant-a/app --region eu-central-1\n" +
			"  keys=$(wid token --service-account tenant-a/app --region eu-central-1 -o env --reveal) && eval \"$keys\"\n" +
			"  wid token --provider generic --service-account tenant-a/app --audience vault -o json --reveal",
		Args: cobra.NoArgs,
	}
	id := a.NewIdentity(cmd)
	o := cli.OutputFlag(cmd, "table", "json", "yaml", "env")
	cmd.Flags().BoolVar(&reveal, "reveal", false, "show secrets")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return id.run(cmd, func(ctx context.Context) ([]byte, error) {
			if o.Format == "env" && !reveal {
				return nil, cli.Usagef("--output env is made of secrets: add --reveal")
			}
			s, provider, err := id.resolveNamed(ctx, cmd)
			if err != nil {
				return nil, err
			}
			c, err := id.accessToken(ctx, s, provider)
			if err != nil {
				return nil, err
			}
			return newShown(c, s, reveal).print(o)
		})
	}
	return cmd
}

// accessToken is auth.GetAccessToken through the cache on disk.
func (id *Identity) accessToken(ctx context.Context, s *Source, provider auth.Provider) (*credential, error) {
	return id.get(ctx, s, request{Kind: "access-token", Provider: provider.GetName()},
		func(ctx context.Context, opts []auth.Option) (*credential, error) {
			t, err := auth.GetAccessToken(ctx, provider, opts...)
			if err != nil {
				return nil, err
			}
			return fromAccessToken(provider, s, t)
		})
}

// fromAccessToken reads the token types of all providers.
func fromAccessToken(provider auth.Provider, s *Source, t auth.Token) (*credential, error) {
	c := &credential{Provider: provider.GetName()}
	if s.ServiceAccount != nil {
		c.Identity, _ = provider.GetIdentity(s.ServiceAccount, &auth.Options{}) // the token shows that it is valid
	}
	switch t := t.(type) {
	case *aws.Token:
		keys := t.Credentials()
		c.AccessKeyID, c.SecretKey, c.SessionToken = keys.AccessKeyID, keys.SecretAccessKey, keys.SessionToken
		c.AccountID, c.Expires = t.AccountID(), t.ExpiresAt()
		if arn := t.AssumedRoleARN(); arn != "" {
			c.Identity = arn
		}
	case *azure.Token:
		c.Token, c.Expires = t.AccessToken().Token, t.ExpiresAt()
	case *gcp.Token:
		c.Token, c.Expires = t.AccessToken(), t.ExpiresAt()
	case *gcp.IDToken:
		c.IDToken, c.Expires = t.Value(), t.ExpiresAt()
	case *token.Token:
		c.Token, c.Expires = t.Reveal(), t.ExpiresAt()
	case *exchange.Token:
		c.Token, c.Expires = t.Reveal(), t.ExpiresAt()
	default:
		return nil, fmt.Errorf("the provider %q has tokens of type %T, which wid does not know", c.Provider, t)
	}
	return c, nil
}

// value is a part of a credential. Its name is the environment variable that tools read.
type value struct {
	name, text string
	secret     bool
}

// tokenVariables are the names for the access tokens of each provider.
var tokenVariables = map[string]string{"azure": "AZURE_ACCESS_TOKEN", "gcp": "CLOUDSDK_AUTH_ACCESS_TOKEN"}

func (c *credential) values() []value {
	var all []value
	add := func(name, text string, secret bool) {
		if text != "" {
			all = append(all, value{name, text, secret})
		}
	}
	add("AWS_ACCESS_KEY_ID", c.AccessKeyID, false)
	add("AWS_SECRET_ACCESS_KEY", c.SecretKey, true)
	add("AWS_SESSION_TOKEN", c.SessionToken, true)
	name := tokenVariables[c.Provider]
	if name == "" {
		name = "WID_TOKEN"
	}
	add(name, c.Token, true)
	add("WID_ID_TOKEN", c.IDToken, true)
	return all
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

	all []value
}

func newShown(c *credential, s *Source, reveal bool) *shown {
	out := &shown{Provider: c.Provider, Identity: c.Identity, AccountID: c.AccountID, all: c.values(), Values: map[string]string{}}
	if sa := s.ServiceAccount; sa != nil {
		out.ServiceAccount = sa.Namespace + "/" + sa.Name
	}
	if !c.Expires.IsZero() {
		end := c.Expires.UTC().Truncate(time.Second)
		out.Expires = &end
	}
	for _, v := range out.all {
		if v.secret && !reveal {
			out.Redacted = append(out.Redacted, v.name)
			continue
		}
		out.Values[v.name] = v.text
	}
	return out
}

func (s *shown) print(o *cli.Output) ([]byte, error) {
	if o.Format != "env" {
		return o.Encode(s, s.table)
	}
	var b bytes.Buffer
	for _, v := range s.all {
		_, _ = fmt.Fprintf(&b, "export %s='%s'\n", v.name, strings.ReplaceAll(v.text, "'", `'\''`)) // a bytes.Buffer never fails
	}
	return b.Bytes(), nil
}

func (s *shown) table(w io.Writer) {
	expires := "never"
	if s.Expires != nil {
		expires = fmt.Sprintf("%s (in %s)", s.Expires.Format(time.RFC3339), time.Until(*s.Expires).Round(time.Second))
	}
	for _, line := range [][2]string{{"provider", s.Provider}, {"ServiceAccount", s.ServiceAccount}, {"identity", s.Identity}, {"account", s.AccountID}, {"expires", expires}} {
		if line[1] != "" {
			cli.Row(w, line[:]...)
		}
	}
	for _, v := range s.all {
		text, ok := s.Values[v.name]
		if !ok {
			text = "[redacted, see --reveal]"
		}
		cli.Row(w, v.name, text)
	}
}
