package credentials

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/auth/plugin"
	"github.com/workloadid/workloadid/auth/token"
)

// request describes the wanted credential.
type request struct {
	kind     string
	provider auth.Provider
	// target is the registry, the repository or the cluster.
	target []string
	// mint gets the credential from the library.
	mint func(ctx context.Context, opts []auth.Option) (*credential, error)
}

func forAccess(p auth.Provider) request {
	return request{"access-token", p, nil, func(ctx context.Context, opts []auth.Option) (*credential, error) {
		t, err := auth.GetAccessToken(ctx, p, opts...)
		if err != nil {
			return nil, err
		}
		return fromAccessToken(p, t)
	}}
}

func forRegistry(p auth.Provider, host string) request {
	return request{"registry", p, []string{host}, func(ctx context.Context, opts []auth.Option) (*credential, error) {
		r, err := auth.GetArtifactRegistryCredentials(ctx, p, host, opts...)
		if err != nil {
			return nil, err
		}
		login, err := r.Authorization()
		if err != nil {
			return nil, err
		}
		return &credential{GitCredential: plugin.GitCredential{Username: login.Username, Password: login.Password, Expires: r.ExpiresAt()}}, nil
	}}
}

func forRepository(p auth.Provider, u *url.URL) request {
	return request{"git", p, []string{u.String()}, func(ctx context.Context, opts []auth.Option) (*credential, error) {
		g, err := auth.GetGitCredentials(ctx, p, append(slices.Clip(opts), auth.WithGitURL(*u))...)
		if err != nil {
			return nil, err
		}
		return &credential{GitCredential: plugin.GitCredential{Username: g.Username(), Password: g.Password(), BearerToken: g.BearerToken(), Expires: g.ExpiresAt()}}, nil
	}}
}

func forCluster(p auth.Provider, t target, ca []byte) request {
	return request{"cluster", p, []string{t.resource, t.address, string(ca), t.name, string(t.presented)}, func(ctx context.Context, opts []auth.Option) (*credential, error) {
		config, err := auth.GetRESTConfig(ctx, p, slices.Concat(opts, t.options(ca))...)
		if err != nil {
			return nil, err
		}
		if err := t.checkPresented(config.CAData()); err != nil {
			return nil, err
		}
		return bearer(config.BearerToken(), config.ExpiresAt()), nil
	}}
}

func bearer(token string, expires time.Time) *credential {
	return &credential{GitCredential: plugin.GitCredential{BearerToken: token, Expires: expires}}
}

// fromAccessToken reads the token types of all providers.
func fromAccessToken(p auth.Provider, t auth.Token) (*credential, error) {
	switch t := t.(type) {
	case *aws.Token:
		k := t.Credentials()
		c := bearer("", t.ExpiresAt())
		c.Identity = t.AssumedRoleARN()
		c.Keys = plugin.ProcessCredentials{AccessKeyID: k.AccessKeyID, SecretAccessKey: k.SecretAccessKey, SessionToken: k.SessionToken,
			AccountID: t.AccountID(), Expires: t.ExpiresAt()}
		return c, nil
	case *azure.Token:
		return bearer(t.AccessToken().Token, t.ExpiresAt()), nil
	case *gcp.Token:
		return bearer(t.AccessToken(), t.ExpiresAt()), nil
	case *gcp.IDToken:
		c := bearer("", t.ExpiresAt())
		c.IDToken = t.Value()
		return c, nil
	case *token.Token:
		return bearer(t.Reveal(), t.ExpiresAt()), nil
	case *exchange.Token:
		return bearer(t.Reveal(), t.ExpiresAt()), nil
	}
	return nil, fmt.Errorf("the provider %q has tokens of type %T, which wid does not know", p.GetName(), t)
}
