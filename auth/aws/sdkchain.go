package aws

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/endpointcreds"
	"github.com/aws/aws-sdk-go-v2/credentials/processcreds"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/transport"
)

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
	process                 bool // one that runs a program is not for calls that may not
}

// get loads the configuration without holding the lock: that reads files. Two callers at once may both do it, and a
// failure is not remembered.
func (c *chains) get(ctx context.Context, p *Provider, opts *auth.Options) (aws.CredentialsProvider, error) {
	key := chainKey{client: opts.HTTPClient, region: p.stsRegion(opts), endpoint: opts.STSEndpoint, process: opts.AllowShellOut}
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
	client, process := chainClient(opts), false
	load := []func(*config.LoadOptions) error{
		config.WithRegion(p.stsRegion(opts)),
		config.WithHTTPClient(client),
		config.WithAPIOptions([]func(*middleware.Stack) error{sending(opts.HTTPClient)}),
		config.WithEndpointCredentialOptions(func(o *endpointcreds.Options) { o.HTTPClient = client }),
		config.WithProcessCredentialOptions(func(*processcreds.Options) { process = true }),
		config.WithRetryer(newRetryer),
		config.WithUseFIPSEndpoint(fips(p.UseFIPSEndpoint)),
		config.WithUseDualStackEndpoint(dualStack(p.UseDualStackEndpoint)),
	}
	if opts.STSEndpoint != "" {
		load = append(load, config.WithBaseEndpoint(opts.STSEndpoint))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	switch {
	case err != nil:
		return nil, err
	case process && !opts.AllowShellOut:
		return nil, &auth.Error{Provider: ProviderName, Operation: opControllerToken, Reason: auth.ErrMisconfigured,
			Message: "the shared configuration names a credential_process, and no program may be run",
			Remedy:  noIdentity + ", or pass auth.WithAllowShellOut in a program that a person runs"}
	}
	return cfg.Credentials, nil
}

// chainClient is of the SDK's own type, since the SDK has that one trust AWS_CA_BUNDLE, and fails with any other.
func chainClient(opts *auth.Options) *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().
		WithTimeout(time.Duration(maxAttempts) * transport.RequestTimeout).
		WithTransportOptions(func(t *http.Transport) { transport.UseProxy(t, opts.ProxyURL) })
}

// sending is the last step of each of the SDK's requests. It hands them to the client that the options give, if any, with that
// client's own trust, and bounds what is read of the answers.
func sending(given *http.Client) func(*middleware.Stack) error {
	var handler middleware.Handler
	if given != nil {
		handler = smithyhttp.NewClientHandlerWithOptions(transport.Guard(given))
	}
	send := func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler,
	) (out middleware.DeserializeOutput, metadata middleware.Metadata, err error) {
		if handler != nil {
			out.RawResponse, metadata, err = handler.Handle(ctx, in.Request)
		} else {
			out, metadata, err = next.HandleDeserialize(ctx, in)
		}
		if answer, ok := out.RawResponse.(*smithyhttp.Response); ok && answer.Response != nil {
			answer.Body = http.MaxBytesReader(nil, answer.Body, transport.MaxBody)
		}
		return out, metadata, err
	}
	return func(stack *middleware.Stack) error {
		return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("workloadidSend", send), middleware.After)
	}
}
