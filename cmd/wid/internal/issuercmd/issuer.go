// Package issuercmd is wid issuer.
package issuercmd

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/issuer"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/transport"
)

// NewIssuer returns wid issuer.
func NewIssuer() *cobra.Command {
	return cli.Group("issuer", "Public keys of a cluster's ServiceAccount tokens, for clouds", newCheck(), newPublish(), newTrust())
}

const ofCluster = "the cluster whose tokens clouds verify"

// source is the cluster and its issuer, as all commands name them.
type source struct {
	cli.Side
	issuer, serviceAccount string
	maxLifetime            time.Duration
}

func (s *source) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.issuer, "issuer", "", "issuer, as tokens name it; that of a new token of the cluster otherwise")
}

// addProbeTo adds the ServiceAccount whose tokens only show what the API server issues.
func (s *source) addProbeTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.serviceAccount, "service-account", "default/default", "the ServiceAccount to request a test token of, namespace/name")
	cli.Rare(cmd.Flags(), "service-account")
}

func (s *source) addLifetimeTo(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&s.maxLifetime, "max-token-lifetime", 0, "lifetime of the longest token, as --service-account-max-token-expiration of the API server; else 24h, or what was published with")
}

func (s *source) verification() (issuer.Verification, error) {
	config, _, err := s.Config()
	if err != nil {
		return issuer.Verification{}, err
	}
	v := issuer.Verification{Cluster: config, Issuer: s.issuer, MaxTokenLifetime: s.maxLifetime}
	if s.serviceAccount != "" {
		v.ServiceAccount, err = parseAccount(s.serviceAccount)
	}
	return v, err
}

// findTimeout bounds the request for a token that names the issuer.
const findTimeout = 30 * time.Second

// findIssuer returns --issuer, or else that of the cluster's tokens.
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
		return "", cli.Problem(auth.ErrUnavailable, "check the API server's address and the network, or name the issuer with --issuer", "the API server issued no token within %s", findTimeout)
	}
	if err != nil {
		e := cli.Problem(auth.ErrMisconfigured, "name it with --issuer, or use a user who may create tokens", "%s", cli.OneLine(err.Error()))
		return "", e
	}
	return found, nil
}

func parseAccount(s string) (types.NamespacedName, error) {
	namespace, name, ok := strings.Cut(s, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return types.NamespacedName{}, cli.Usagef("--service-account is namespace/name, not %.300q", s)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}

// outside is how a cloud reaches the issuer, for tests before DNS and certificates are public.
type outside struct {
	resolve []string
	caFile  string
}

func (o *outside) addTo(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&o.resolve, "resolve", nil, "connect to this address for a host, HOST:PORT:ADDRESS, before DNS leads there")
	cmd.Flags().StringVar(&o.caFile, "ca-file", "", "file with the CA of the issuer's server, for tests; clouds want a public one")
	cli.Rare(cmd.Flags(), "resolve", "ca-file")
}

// client returns nil for the default one.
func (o *outside) client() (*http.Client, error) {
	addresses := map[string]string{}
	for _, entry := range o.resolve {
		parts := strings.SplitN(entry, ":", 3)
		if len(parts) != 3 || slices.Contains(parts, "") {
			return nil, cli.Usagef("--resolve is HOST:PORT:ADDRESS, not %.300q", entry)
		}
		addresses[parts[0]+":"+parts[1]] = net.JoinHostPort(strings.Trim(parts[2], "[]"), parts[1])
	}
	var ca []byte
	if o.caFile != "" {
		var err error
		if ca, err = cli.ReadBounded(o.caFile); err != nil {
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

// answerOf classifies an error of auth/issuer. Its own texts hold the remedy, those of networks and API servers do not.
func answerOf(err error, operation string) error {
	var network net.Error
	var status apierrors.APIStatus
	if err == nil || errors.As(err, new(*auth.Error)) || errors.As(err, &network) || errors.As(err, &status) {
		return cli.AnswerOf(err, operation)
	}
	return &auth.Error{Reason: auth.ErrMisconfigured, Err: err, Message: cli.OneLine(err.Error())}
}
