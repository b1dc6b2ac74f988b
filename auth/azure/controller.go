package azure

import (
	"context"
	"errors"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/internal/oauth"
	"github.com/workloadid/workloadid/auth/provider"
)

const opControllerToken = "find own Azure credentials" //nolint:gosec // not a credential

// NewControllerToken returns an access token of the first source that is set
// up. The sources are a client secret or certificate in the environment, the
// workload identity of the pod and the managed identity of the machine. With
// AllowShellOut, the Azure command-line tools follow. If Azure refuses a source
// that is set up, the search ends: the next source would be another identity.
//
// The SDK keeps tokens until five minutes before their expiry. Each call
// therefore makes new credentials, which costs a request for the address of the
// token endpoint. The token service of managed identities keeps its tokens for
// many hours.
func (p *Provider) NewControllerToken(ctx context.Context, opts *provider.Options) (auth.Token, error) {
	e, authority, err := p.environmentOf(opts)
	if err != nil {
		return nil, err
	}
	scopes, err := e.scopes(opts)
	if err != nil {
		return nil, err
	}
	request := policy.TokenRequestOptions{Scopes: scopes, Claims: claimsOf(opts)}
	var missing []error
	audience := e.audiences[0]
	if e == p.learn().standard {
		audience = "" // the environment names both the token file and the authority
	}
	for _, source := range sources(p.clients.ForTokens(opts), p.learn().proxy, authority, audience, opts) {
		token, err := retryStale(ctx, func() (sdkToken, error) { return source.token(ctx, request) })
		if err == nil {
			tenant := ""
			if source.fromEnvironment {
				tenant = p.learn().tenant
			}
			return checkController(token, tenant, source.name, time.Now())
		}
		var absent *notSetUp
		if !errors.As(err, &absent) {
			return nil, err
		}
		missing = append(missing, err)
	}
	return nil, nothingFound(missing)
}

func nothingFound(missing []error) error {
	all := errors.Join(missing...)
	text, reason := "", auth.ErrUnavailable
	for _, err := range missing {
		text += "; " + err.Error()
		var absent *notSetUp
		if errors.As(err, &absent) && absent.definite {
			reason = auth.ErrMisconfigured // the machine needs an identity
		}
	}
	return &auth.Error{Provider: ProviderName, Operation: opControllerToken, Reason: reason, Err: all,
		Cause: provider.CauseNoOwnIdentity, Message: "this process has no identity" + text,
		Remedy: `give it one (Microsoft Entra Workload ID needs the label azure.workload.identity/use: "true"), ` +
			`or name a ServiceAccount`, Option: "auth.WithServiceAccount"}
}

// checkController refuses a token of the SDK that cannot be used.
func checkController(token sdkToken, tenant, source string, now time.Time) (auth.Token, error) {
	err := oauth.CheckToken(token.Token)
	if err == nil {
		err = provider.CheckExpiry(token.ExpiresOn, now, maxLife)
	}
	if err != nil {
		return nil, self.Unavailable(opControllerToken, "", "the token of the %s cannot be used: %v", source, err)
	}
	refreshAt := token.RefreshOn
	if !refreshAt.After(now) || !refreshAt.Before(token.ExpiresOn) {
		refreshAt = time.Time{}
	}
	return newToken(token.Token, token.ExpiresOn, refreshAt, tenant), nil
}
