package issuercmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/issuer"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/issuercheck"
)

type check struct {
	source
	outside
	store     store
	tokenFile string
	output    *cli.Output
}

func newCheck() *cobra.Command {
	c := &check{}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Verify that clouds can verify the cluster's tokens",
		Long: "Verify that clouds can verify the cluster's tokens: it reads the issuer's documents as a cloud does, and compares them with a new " +
			"token and with the keys of the API server. It changes nothing.",
		Example: "  wid issuer check\n" +
			"  wid issuer check --issuer https://oidc.example.com/cluster-1 --token-file old-token\n" +
			"  wid issuer check --to gcp://projects/123456789012/locations/global/workloadIdentityPools/clusters/providers/cluster-1",
	}
	c.output = cli.OutputFlag(cmd, "text", "json", "yaml")
	c.source.addTo(cmd)
	cmd.Flags().StringVar(&c.tokenFile, "token-file", "", "file with a token that clouds shall accept, such as one of a former issuer; a new token otherwise")
	c.store.addTo(cmd, "the Google pool provider whose keys to verify; no other store, since clouds read those at the issuer")
	c.addLifetimeTo(cmd)
	c.addProbeTo(cmd)
	c.outside.addTo(cmd)
	return c.Command(cmd, ofCluster, c.run)
}

func (c *check) run(ctx context.Context, cmd *cobra.Command) error {
	v, err := c.verification()
	if err != nil {
		return err
	}
	if v.HTTPClient, err = c.client(); err != nil {
		return err
	}
	defer v.HTTPClient.CloseIdleConnections()
	if c.tokenFile != "" {
		token, err := cli.ReadBounded(c.tokenFile)
		if err != nil {
			return cli.Usagef("--token-file: %v", err)
		}
		v.Token = strings.TrimSpace(string(token))
	}
	if v.Keys, err = c.keys(ctx); err != nil {
		return err
	}
	checks, err := issuer.Verify(ctx, v)
	if err != nil {
		return answerOf(err, "verify the issuer")
	}
	if c.output.Format == "text" {
		_, err = fmt.Fprint(cmd.OutOrStdout(), textOf(checks))
	} else {
		err = c.output.Print(cmd, checks, nil)
	}
	if err != nil {
		return err
	}
	return verdictOf(checks)
}

// keys returns those that Google was given.
func (c *check) keys(ctx context.Context) ([]byte, error) {
	if c.store.url == "" {
		return nil, nil
	}
	if !strings.HasPrefix(c.store.url, "gcp://") {
		return nil, cli.Usagef("--to %.300q: clouds read the keys of this store at the issuer; leave --to out", c.store.url)
	}
	s, err := c.store.open(ctx)
	if err != nil {
		return nil, err
	}
	keys, _, err := s.Read(ctx, issuer.KeysFile)
	return keys, answerOf(err, "read the uploaded keys")
}

// textOf lists the checks. A failed one shows the wrong line, the right one and a remedy.
func textOf(checks []issuer.Check) string {
	var b strings.Builder
	unsigned := false
	for _, c := range checks {
		switch {
		case c.OK:
			fmt.Fprintf(&b, "ok    %s\n", c.Name)
			continue
		case c.Skipped != "":
			fmt.Fprintf(&b, "skip  %s: %s\n", c.Name, cli.OneLine(c.Skipped))
			unsigned = unsigned || c.Name == issuercheck.SigningKey
			continue
		case c.Warning:
			fmt.Fprintf(&b, "warn  %s: %s\n", c.Name, cli.OneLine(c.Problem))
		default:
			fmt.Fprintf(&b, "FAIL  %s: %s\n", c.Name, cli.OneLine(c.Problem))
		}
		for _, line := range [][2]string{{"got", c.Got}, {"want", c.Want}, {"fix", c.Remedy}, {"run", commandFor(c.Name)}} {
			if line[1] != "" {
				fmt.Fprintf(&b, "      %-5s %s\n", line[0], cli.OneLine(line[1]))
			}
		}
	}
	if unsigned {
		b.WriteString("no signature was verified: use a user who may create tokens, or pass --token-file\n")
	}
	return b.String()
}

// commandFor returns the command of this program that corrects a failure, "" if none does.
func commandFor(check string) string {
	switch check {
	case issuercheck.ForeignKeys:
		return "wid issuer publish --to STORE --remove-key KID"
	case issuercheck.Public, issuercheck.Discovery, issuercheck.SameIssuer, issuercheck.KeysPublic, issuercheck.KeySet, issuercheck.KeysOfCluster,
		issuercheck.SigningKey, issuercheck.Signature:
		return "wid issuer publish --to STORE"
	}
	return ""
}

// verdictOf returns the error of failed checks. An issuer that does not answer may answer later.
func verdictOf(checks []issuer.Check) error {
	failed := issuer.Failed(checks)
	if len(failed) == 0 {
		return nil
	}
	var names []string
	reason := auth.ErrMisconfigured
	for _, c := range failed {
		names = append(names, c.Name)
	}
	if slices.Contains(names, issuercheck.Reachable) || slices.Contains(names, issuercheck.KeysReachable) {
		reason = auth.ErrUnavailable
	}
	return cli.Problem(reason, "see the lines above", "clouds cannot verify every token of the cluster: %s failed", strings.Join(names, ", "))
}
