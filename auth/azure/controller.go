package azure

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/authcause"
	"github.com/workloadid/workloadid/internal/oauth"
	"github.com/workloadid/workloadid/internal/providers"
	"github.com/workloadid/workloadid/internal/redact"
)

const opControllerToken = "find own Azure credentials" //nolint:gosec // not a credential

// NewControllerToken returns an access token of the first source that is set up: a client secret or certificate in the environment, the
// workload identity of the pod, the managed identity of the machine and, only with AllowShellOut, the Azure command-line tools. If
// Azure refuses a source that is set up, the search ends: the next source would be another identity.
//
// The SDK keeps tokens until five minutes before their expiry. Each call therefore makes new credentials, which costs no request because
// the Provider keeps the address of the token endpoint. The token service of managed identities keeps its tokens for many hours.
func (p *Provider) NewControllerToken(ctx context.Context, opts *provider.Options) (auth.Token, error) {
	e, authority, err := p.environmentOf(opts)
	if err != nil {
		return nil, err
	}
	scopes, err := e.scopes(opts)
	if err != nil {
		return nil, err
	}
	kept := p.chains.get(p, e, authority, opts)
	request := policy.TokenRequestOptions{Scopes: scopes, Claims: claimsOf(opts)}
	var missing []error
	for _, source := range sources(kept, authority, opts) {
		token, err := source.token(ctx, request)
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
		Cause: authcause.NoOwnIdentity, Message: "this process has no identity" + text,
		Remedy: `give it one (Microsoft Entra Workload ID needs the label azure.workload.identity/use: "true"), ` +
			`or name a ServiceAccount`, Option: "auth.WithServiceAccount"}
}

// checkController refuses a token of the SDK that cannot be used.
func checkController(token sdkToken, tenant, source string, now time.Time) (auth.Token, error) {
	err := oauth.CheckToken(token.Token)
	if err == nil {
		err = providers.CheckExpiry(token.ExpiresOn, now, maxLife)
	}
	if err != nil {
		return nil, self.Unavailable(opControllerToken, "", "the token of the %s cannot be used: %v", source, err)
	}
	t := &Token{accessToken: redact.New(token.Token), expiresAt: token.ExpiresOn, tenant: tenant}
	if token.RefreshOn.After(now) && token.RefreshOn.Before(token.ExpiresOn) {
		t.refreshAt = token.RefreshOn
	}
	return t, nil
}

// maxChains bounds the configurations in memory: tenants can set proxies.
const maxChains = 64

// chains keeps what the Provider has learned about each way to reach Azure.
type chains struct {
	mu     sync.Mutex
	loaded *simplelru.LRU[chainKey, *chain]
}

type chainKey struct {
	client           *http.Client
	proxy, authority string
}

// chain is one way to reach Azure. It is safe for concurrent use, and holds no lock while it uses the network.
type chain struct {
	client      *http.Client
	authorities []string // of the cloud

	mu        sync.Mutex
	documents map[string]keptDocument // by URL; never more than maxDocuments
	metadata  bool                    // the machine has a metadata service
}

func (c *chains) get(p *Provider, e *environment, authority string, opts *provider.Options) *chain {
	key := chainKey{client: opts.HTTPClient, authority: authority}
	if opts.ProxyURL != nil {
		key.proxy = opts.ProxyURL.String()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loaded == nil {
		c.loaded, _ = simplelru.NewLRU[chainKey, *chain](maxChains, nil) // fails for sizes below 1 only
	}
	if kept, ok := c.loaded.Get(key); ok {
		return kept
	}
	kept := &chain{client: p.clients.For(opts), authorities: e.authorities, documents: map[string]keptDocument{}}
	c.loaded.Add(key, kept)
	return kept
}
