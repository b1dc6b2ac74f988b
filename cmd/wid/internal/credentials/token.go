package credentials

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/auth/provider"
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
	}
	o := cli.OutputFlag(cmd, "table", "json", "yaml", "env")
	cmd.Flags().BoolVar(&reveal, "reveal", false, "show secrets")
	return a.command(cmd, func(ctx context.Context, id *Identity, _ []string) ([]byte, error) {
		if o.Format == "env" && !reveal {
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
		return c.print(p.GetName(), s.account, o, reveal)
	})
}

// value is a part of a credential. Its name is the environment variable that tools read.
type value struct {
	name, text string
	secret     bool
}

func (c *credential) values(provider string) []value {
	variable := map[string]string{azure.ProviderName: "AZURE_ACCESS_TOKEN", gcp.ProviderName: "CLOUDSDK_AUTH_ACCESS_TOKEN"}[provider]
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
	rows := [][]string{{"provider", out.Provider}, {"ServiceAccount", out.ServiceAccount}, {"identity", out.Identity}, {"account", out.AccountID}, {"expires", expires}}
	var env bytes.Buffer
	for _, v := range c.values(provider) {
		if v.secret && !reveal {
			out.Redacted = append(out.Redacted, v.name)
			rows = append(rows, []string{v.name, "[redacted, see --reveal]"})
			continue
		}
		out.Values[v.name] = v.text
		rows = append(rows, []string{v.name, v.text})
		_, _ = fmt.Fprintf(&env, "export %s='%s'\n", v.name, strings.ReplaceAll(v.text, "'", `'\''`)) // a bytes.Buffer never fails
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
