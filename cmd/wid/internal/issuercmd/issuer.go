// Package issuercmd is wid issuer.
package issuercmd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/credentials"
	"github.com/workloadid/workloadid/internal/exactjson"
	"github.com/workloadid/workloadid/internal/input"
	"github.com/workloadid/workloadid/internal/transport"
	"github.com/workloadid/workloadid/issuer"
)

// NewIssuer returns wid issuer.
func NewIssuer() *cobra.Command {
	return cli.Group("issuer", "Public keys of a cluster's ServiceAccount tokens, for clouds", newCheck(), newPublish(),
		newTrust())
}

const ofCluster = "the cluster whose tokens clouds verify"

// source is the cluster and its issuer, as all commands name them.
type source struct {
	cli.Side
	issuer, serviceAccount string
	maxLifetime            time.Duration
}

func (s *source) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.issuer, "issuer", "",
		"issuer, as tokens name it; that of a new token of the cluster otherwise")
}

// addTokensTo adds the ServiceAccount whose tokens only show what the API
// server issues, and the lifetime of others.
func (s *source) addTokensTo(cmd *cobra.Command) {
	s.addTo(cmd)
	cmd.Flags().DurationVar(&s.maxLifetime, "max-token-lifetime", 0,
		"lifetime of the longest token, as --service-account-max-token-expiration of the API server; else 24h, or what was published with")
	cmd.Flags().StringVar(&s.serviceAccount, "service-account", "default/default",
		"the ServiceAccount to request a test token of, namespace/name")
	cli.Rare(cmd.Flags(), "service-account")
}

func (s *source) verification() (issuer.Verification, error) {
	config, _, err := s.Config()
	if err != nil {
		return issuer.Verification{}, err
	}
	account, err := credentials.ParseKey("service-account", s.serviceAccount)
	return issuer.Verification{Cluster: config, Issuer: s.issuer, MaxTokenLifetime: s.maxLifetime,
		ServiceAccount: account}, err
}

// findTimeout bounds the request for a token that names the issuer.
const findTimeout = 30 * time.Second

// findIssuer returns --issuer, or else the issuer of the cluster's tokens.
func (s *source) findIssuer(ctx context.Context) (string, error) {
	if s.issuer != "" {
		return s.issuer, nil
	}
	v, err := s.verification()
	if err != nil {
		return "", err
	}
	ctx, stop := context.WithTimeout(ctx, findTimeout)
	defer stop()
	found, err := v.IssuerOfTokens(ctx)
	if ctx.Err() != nil {
		return "", cli.Problem(auth.ErrUnavailable,
			"check the API server's address and the network, or name the issuer with --issuer",
			"the API server issued no token within %s", findTimeout)
	}
	if err != nil && !errors.As(err, new(*auth.Error)) {
		err = cli.Problem(auth.ErrMisconfigured, "name it with --issuer, or use a user who may create tokens", "%s",
			cli.OneLine(err.Error()))
	}
	return found, err
}

// Outside is how a cloud reaches the issuer, for tests before DNS and
// certificates are public.
type Outside struct {
	resolve []string
	caFile  string
}

// AddTo adds --resolve and --ca-file.
func (o *Outside) AddTo(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&o.resolve, "resolve", nil,
		"connect to this address for a host, HOST:PORT:ADDRESS, before DNS leads there")
	cmd.Flags().StringVar(&o.caFile, "ca-file", "",
		"file with the CA of the issuer's server, for tests; clouds want a public one")
	cli.Rare(cmd.Flags(), "resolve", "ca-file")
}

// IsSet reports whether a flag was given.
func (o *Outside) IsSet() bool { return len(o.resolve) > 0 || o.caFile != "" }

// Client returns a client for the issuer's documents, or a mistake in the
// flags.
func (o *Outside) Client() (*http.Client, error) {
	addresses := map[string]string{}
	for _, entry := range o.resolve {
		parts := strings.SplitN(entry, ":", 3)
		if len(parts) != 3 || slices.Contains(parts, "") ||
			strings.Contains(parts[2], ":") && net.ParseIP(strings.Trim(parts[2], "[]")) == nil {
			return nil, cli.Usagef("--resolve is HOST:PORT:ADDRESS, where ADDRESS has no port, not %.300q", entry)
		}
		addresses[parts[0]+":"+parts[1]] = net.JoinHostPort(strings.Trim(parts[2], "[]"), parts[1])
	}
	var ca []byte
	if o.caFile != "" {
		var err error
		if ca, err = input.ReadFile(o.caFile); err != nil {
			return nil, cli.Usagef("--ca-file: %v", err)
		}
	}
	c, err := (&transport.Pool{}).Client(nil, string(ca))
	if err != nil {
		return nil, cli.Usagef("--ca-file %.300q: %v", o.caFile, err)
	}
	if len(addresses) == 0 {
		return c, nil
	}
	return transport.Derive(c, func(t *http.Transport) {
		dial := t.DialContext
		t.Proxy = nil // it would resolve the name
		t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			if to := addresses[address]; to != "" {
				address = to
			}
			return dial(ctx, network, address)
		}
	}), nil
}

// answerOf classifies an error of issuer. Texts of issuer hold the remedy;
// texts of networks and API servers do not.
func answerOf(err error, operation string) error {
	var network net.Error
	var status apierrors.APIStatus
	if err == nil || errors.As(err, new(*auth.Error)) || errors.As(err, &network) || errors.As(err, &status) {
		return cli.AnswerOf(err, operation)
	}
	return &auth.Error{Reason: auth.ErrMisconfigured, Err: err, Message: cli.OneLine(err.Error())}
}

type check struct {
	source
	Outside
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
			"  wid issuer check --to gcp://projects/123456789012/locations/global/workloadIdentityPools/cluster-1/providers/cluster-1",
	}
	c.output = cli.OutputFlag(cmd, "text", "json", "yaml")
	cmd.Flags().StringVar(&c.tokenFile, "token-file", "",
		"file with a token that clouds shall accept, such as one of a former issuer; a new token otherwise")
	cmd.Flags().StringVar(&c.store.url, "to", "",
		"the Google pool provider whose keys to verify; no other store, since clouds read those at the issuer")
	c.addTokensTo(cmd)
	c.AddTo(cmd)
	return c.Command(cmd, ofCluster, c.run)
}

func (c *check) run(ctx context.Context, cmd *cobra.Command) error {
	v, err := c.verification()
	if err != nil {
		return err
	}
	if v.HTTPClient, err = c.Client(); err != nil {
		return err
	}
	defer v.HTTPClient.CloseIdleConnections()
	if c.tokenFile != "" {
		token, err := input.ReadFile(c.tokenFile)
		if err != nil {
			return cli.Usagef("--token-file: %v", err)
		}
		v.Token = strings.TrimSpace(string(token))
	}
	if err := c.addUploaded(ctx, &v); err != nil {
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

// addUploaded adds the keys and the issuer that Google was given.
func (c *check) addUploaded(ctx context.Context, v *issuer.Verification) error {
	if c.store.url == "" {
		return nil
	}
	if !strings.HasPrefix(c.store.url, "gcp://") {
		return cli.Usagef("--to %.300q: clouds read the keys of this store at the issuer; leave --to out", c.store.url)
	}
	s, err := c.store.open(ctx)
	if err != nil {
		return err
	}
	var given struct {
		Issuer string `json:"issuer"`
	}
	document, _, err := s.Read(ctx, issuer.DiscoveryFile)
	if err == nil {
		err = exactjson.Unmarshal(document, &given)
	}
	if err == nil {
		v.Keys, _, err = s.Read(ctx, issuer.KeysFile)
	}
	v.KeysIssuer = given.Issuer
	return answerOf(err, "read the uploaded keys")
}

// textOf lists the checks. A failed one shows the wrong line, the right one and
// a remedy.
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
			unsigned = unsigned || c.Name == issuer.CheckSigningKey
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

// commandFor returns the command of this program that corrects a failure, "" if
// none does. It has none that removes a key: a former key leaves by itself, and
// removing it earlier ends tokens that are valid.
func commandFor(check issuer.CheckName) string {
	switch check {
	case issuer.CheckDiscoveryPublic, issuer.CheckDiscoveryDocument, issuer.CheckDiscoveryIssuer, issuer.CheckKeysPublic,
		issuer.CheckKeySet, issuer.CheckKeysOfCluster, issuer.CheckSigningKey, issuer.CheckSignature:
		return "wid issuer publish --to STORE"
	}
	return ""
}

// verdictOf returns the error of failed checks. An issuer that does not answer
// may answer later.
func verdictOf(checks []issuer.Check) error {
	failed := issuer.Failed(checks)
	if len(failed) == 0 {
		return nil
	}
	var names []string
	reason := auth.ErrMisconfigured
	for _, c := range failed {
		names = append(names, string(c.Name))
		if c.Name == issuer.CheckDiscoveryReachable || c.Name == issuer.CheckKeysReachable {
			reason = auth.ErrUnavailable
		}
	}
	return cli.Problem(reason, "see the lines above", "clouds cannot verify every token of the cluster: %s failed",
		strings.Join(names, ", "))
}
