package aws

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/transport"
)

const opControllerToken = "find the controller's own AWS credentials"

// NewControllerToken returns credentials from the SDK's default chain: the environment, shared configuration files, IAM
// roles for service accounts, EKS Pod Identity, the role of the node.
func (p *Provider) NewControllerToken(ctx context.Context, opts *auth.Options) (auth.Token, error) {
	chain, err := p.chains.get(ctx, p, opts)
	if err != nil {
		return nil, controllerError(err)
	}
	// What the chain has kept may be about to expire; a call that gets here wants a new one.
	if cache, ok := chain.(*aws.CredentialsCache); ok {
		cache.Invalidate()
	}
	c, err := chain.Retrieve(ctx)
	if err != nil {
		return nil, controllerError(err)
	}
	if !c.HasKeys() {
		return nil, controllerError(fmt.Errorf("the chain gave no keys"))
	}
	t := ownToken(c)
	if t == nil {
		return nil, controllerError(fmt.Errorf("the credentials are too long"))
	}
	if role := chained(opts); role != nil {
		if t, err = p.assumeRole(ctx, t, firstNonEmpty(sessionPrefix(opts), controllerSession), role, opts); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func ownToken(c aws.Credentials) *Token {
	var expires time.Time
	if c.CanExpire {
		expires = c.Expires
	}
	return newToken(expires, [partCount]string{
		partKeyID: c.AccessKeyID, partSecret: c.SecretAccessKey, partSessionToken: c.SessionToken, partAccount: c.AccountID,
	})
}

func firstNonEmpty(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func controllerError(err error) error {
	e := classify(err, opControllerToken)
	if e.Remedy == "" {
		e.Remedy = "give the controller's pod an identity (IAM roles for service accounts or EKS Pod Identity), or name a ServiceAccount"
	}
	return e
}

// maxChains bounds how many configured chains are kept: tenants can set proxies.
const maxChains = 64

// chains keeps the SDK's configuration once it has been loaded, for each way to reach AWS.
type chains struct {
	mu     sync.Mutex
	loaded *simplelru.LRU[chainKey, aws.CredentialsProvider]
}

type chainKey struct {
	client                  *http.Client
	proxy, region, endpoint string
}

// get loads the configuration without holding the lock: that reads files. Two callers at once may both do it, and a
// failure is not remembered.
func (c *chains) get(ctx context.Context, p *Provider, opts *auth.Options) (aws.CredentialsProvider, error) {
	key := chainKey{client: opts.HTTPClient, region: p.stsRegion(opts), endpoint: opts.STSEndpoint}
	if opts.ProxyURL != nil {
		key.proxy = opts.ProxyURL.String()
	}
	c.mu.Lock()
	if c.loaded == nil {
		c.loaded, _ = simplelru.NewLRU[chainKey, aws.CredentialsProvider](maxChains, nil) // fails for sizes below 1 only
	}
	chain, ok := c.loaded.Get(key)
	c.mu.Unlock()
	if ok {
		return chain, nil
	}
	chain, err := p.loadChain(ctx, opts)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if other, ok := c.loaded.Get(key); ok {
		return other, nil
	}
	c.loaded.Add(key, chain)
	return chain, nil
}

func (p *Provider) loadChain(ctx context.Context, opts *auth.Options) (aws.CredentialsProvider, error) {
	load := []func(*config.LoadOptions) error{
		config.WithRegion(p.stsRegion(opts)),
		config.WithHTTPClient(p.chainClient(opts)),
		config.WithRetryer(newRetryer),
		config.WithUseFIPSEndpoint(fips(p.UseFIPSEndpoint)),
		config.WithUseDualStackEndpoint(dualStack(p.UseDualStackEndpoint)),
	}
	if opts.STSEndpoint != "" {
		load = append(load, config.WithBaseEndpoint(opts.STSEndpoint))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, err
	}
	return cfg.Credentials, nil
}

// chainClient is of the SDK's own type where the options name none, since the SDK adds AWS_CA_BUNDLE to that.
func (p *Provider) chainClient(opts *auth.Options) config.HTTPClient {
	if opts.HTTPClient != nil {
		return transport.Guard(opts.HTTPClient)
	}
	proxy := transport.ProxyFunc(opts.ProxyURL)
	return awshttp.NewBuildableClient().
		WithTimeout(time.Duration(maxAttempts) * transport.RequestTimeout).
		WithTransportOptions(func(t *http.Transport) { t.Proxy = proxy })
}
