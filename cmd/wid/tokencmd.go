package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/auth/token"
)

func (a *app) newToken() *cobra.Command {
	var output string
	var reveal bool
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Get an access token or credentials of a provider",
		Long: "Get an access token or credentials of a provider: for a ServiceAccount, or without one for the identity that\n" +
			"wid itself runs as. Secrets are shown with --reveal only.",
		Example: "  wid token --provider aws --service-account tenant-a/app --region eu-central-1\n" +
			"  wid token --provider gcp --service-account tenant-a/app -o json\n" +
			"  keys=$(wid token --provider aws --service-account tenant-a/app --region eu-central-1 -o env --reveal) &&\n" +
			"    eval \"$keys\"\n" +
			"  wid token --provider generic --service-account tenant-a/app --audience vault -o json --reveal\n" +
			"  wid token --provider azure --token-file /run/token --annotation azure.workload.identity/client-id=$ID",
		Args: exactly(cobra.NoArgs),
	}
	id := a.newIdentity(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table, json or env")
	cmd.Flags().BoolVar(&reveal, "reveal", false, "show secrets")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return id.run(cmd, func(ctx context.Context) ([]byte, error) {
			if err := checkOutput(output, reveal); err != nil {
				return nil, err
			}
			provider, err := id.named()
			if err != nil {
				return nil, err
			}
			s, err := id.resolve(ctx, cmd)
			if err != nil {
				return nil, err
			}
			c, err := id.accessToken(ctx, s, provider)
			if err != nil {
				return nil, err
			}
			return newShown(c, s).print(output, reveal)
		})
	}
	return cmd
}

func checkOutput(output string, reveal bool) error {
	switch output {
	case "table", "json":
		return nil
	case "env":
		if !reveal {
			return usagef("--output env is made of secrets: add --reveal")
		}
		return nil
	}
	return usagef("--output is table, json or env, not %.100q", output)
}

// accessToken is auth.GetAccessToken through the cache on disk.
func (id *identity) accessToken(ctx context.Context, s *source, provider auth.Provider) (*credential, error) {
	return id.get(ctx, s, request{Kind: "access-token", Provider: provider.GetName()},
		func(ctx context.Context, opts []auth.Option) (*credential, error) {
			t, err := auth.GetAccessToken(ctx, provider, opts...)
			if err != nil {
				return nil, err
			}
			return fromAccessToken(provider, s, t)
		})
}

// fromAccessToken takes the tokens of all providers apart.
func fromAccessToken(provider auth.Provider, s *source, t auth.Token) (*credential, error) {
	c := &credential{Provider: provider.GetName()}
	if s.serviceAccount != nil {
		c.Identity, _ = provider.GetIdentity(s.serviceAccount, &auth.Options{}) // it was good enough for the token
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

// value is a part of a credential, under the name of the environment variable that tools expect it in.
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

// shown is a credential as people and scripts see it.
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

func newShown(c *credential, s *source) *shown {
	out := &shown{Provider: c.Provider, Identity: c.Identity, AccountID: c.AccountID, all: c.values(),
		Values: map[string]string{}}
	if sa := s.serviceAccount; sa != nil {
		out.ServiceAccount = sa.Namespace + "/" + sa.Name
	}
	if !c.Expires.IsZero() {
		end := c.Expires.UTC().Truncate(time.Second)
		out.Expires = &end
	}
	return out
}

func (s *shown) print(output string, reveal bool) ([]byte, error) {
	for _, v := range s.all {
		if v.secret && !reveal {
			s.Redacted = append(s.Redacted, v.name)
			continue
		}
		s.Values[v.name] = v.text
	}
	switch output {
	case "json":
		content, err := json.MarshalIndent(s, "", "  ")
		return append(content, '\n'), err
	case "env":
		return s.env(), nil
	}
	return s.table()
}

// env is for the shell.
func (s *shown) env() []byte {
	var b bytes.Buffer
	for _, v := range s.all {
		_, _ = fmt.Fprintf(&b, "export %s='%s'\n", v.name, strings.ReplaceAll(v.text, "'", `'\''`)) // buffers take everything
	}
	return b.Bytes()
}

func (s *shown) table() ([]byte, error) {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(name, text string) {
		if text != "" {
			_, _ = fmt.Fprintf(w, "%s\t%s\n", name, text) // Flush tells
		}
	}
	row("provider", s.Provider)
	row("ServiceAccount", s.ServiceAccount)
	row("identity", s.Identity)
	row("account", s.AccountID)
	if s.Expires == nil {
		row("expires", "never")
	} else {
		row("expires", fmt.Sprintf("%s (in %s)", s.Expires.Format(time.RFC3339), time.Until(*s.Expires).Round(time.Second)))
	}
	for _, v := range s.all {
		text, ok := s.Values[v.name]
		if !ok {
			text = "[redacted, see --reveal]"
		}
		row(v.name, text)
	}
	err := w.Flush()
	return b.Bytes(), err
}
