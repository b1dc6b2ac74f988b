package exchange

import (
	"cmp"
	"context"
	"encoding/base64"
	"net/url"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/oauth"
)

// ClientAuthentication is how the controller proves to the server which client it is (RFC 6749, section 2.3). PublicClient,
// ClientSecretBasic, ClientSecretPost, PrivateKeyJWT and ServiceAccountAssertion make one. It is safe for concurrent use.
type ClientAuthentication interface {
	method() string
	id() string
	check() error
	authenticate(ctx context.Context, r *tokenRequest) error
}

// A SecretFunc returns the client's secret. It is called at every exchange, so that a secret that was replaced is used from
// then on: read it from a file or an informer. It is called concurrently and has to honour the context.
type SecretFunc func(ctx context.Context) (string, error)

// client has what all ways of authentication share.
type client struct{ clientID string }

func (c client) id() string { return c.clientID }

// check refuses what is not a client-id of RFC 6749, appendix A.1.
func (c client) check() error {
	for i := range len(c.clientID) {
		if c.clientID[i] < ' ' || c.clientID[i] > '~' {
			return self.Misconfigured("use the ID under which the controller is registered", "%.100q is not a client ID", c.clientID)
		}
	}
	if c.clientID == "" {
		return self.Misconfigured("use the ID under which the controller is registered", "the client ID is empty")
	}
	return nil
}

type publicClient struct{ client }

// PublicClient names the client without a proof (token_endpoint_auth_method none).
func PublicClient(clientID string) ClientAuthentication { return publicClient{client{clientID}} }

func (publicClient) method() string { return "none" }

func (c publicClient) authenticate(_ context.Context, r *tokenRequest) error {
	r.form.Set("client_id", c.clientID)
	return nil
}

type secretClient struct {
	client
	secret SecretFunc
	post   bool
}

// ClientSecretBasic sends the client's secret in the Authorization header (client_secret_basic).
func ClientSecretBasic(clientID string, secret SecretFunc) ClientAuthentication {
	return secretClient{client{clientID}, secret, false}
}

// ClientSecretPost sends the client's secret in the body (client_secret_post), for servers that know no better.
func ClientSecretPost(clientID string, secret SecretFunc) ClientAuthentication {
	return secretClient{client{clientID}, secret, true}
}

func (c secretClient) method() string {
	if c.post {
		return "client_secret_post"
	}
	return "client_secret_basic"
}

func (c secretClient) check() error {
	if c.secret == nil {
		return self.Misconfigured("pass a function that returns the secret", "the client %.100q has no secret", c.clientID)
	}
	return c.client.check()
}

func (c secretClient) authenticate(ctx context.Context, r *tokenRequest) error {
	secret, err := c.secret(ctx)
	if err != nil {
		return sourceError(err, "the client's secret cannot be had", secret)
	}
	if secret == "" {
		return self.Misconfigured("have the function return the secret or an error", "the secret of client %.100q is empty", c.clientID)
	}
	r.addSecrets(secret, url.QueryEscape(secret))
	if c.post {
		r.form.Set("client_id", c.clientID)
		r.form.Set("client_secret", secret)
		return nil
	}
	// Both are form-encoded first (RFC 6749, section 2.3.1): a colon in the ID would end it.
	basic := base64.StdEncoding.EncodeToString([]byte(url.QueryEscape(c.clientID) + ":" + url.QueryEscape(secret)))
	r.addSecrets(basic)
	r.authorization = "Basic " + basic
	return nil
}

func (r *tokenRequest) setAssertion(jwt, clientID string) {
	r.addSecrets(jwt)
	r.form.Set("client_assertion_type", oauth.AssertionType)
	r.form.Set("client_assertion", jwt)
	if clientID != "" {
		r.form.Set("client_id", clientID)
	}
}

type assertionClient struct {
	client
	source auth.SubjectTokenSource
}

// ServiceAccountAssertion authenticates with a token of the controller's own ServiceAccount (RFC 7521, section 4.2), for
// servers that trust the cluster's issuer for clients: no secret is stored anywhere. The source is asked at every exchange;
// auth.NewFileTokenSource reads a projected volume. The client ID is optional if the server finds the client by the token's
// subject.
func ServiceAccountAssertion(clientID string, source auth.SubjectTokenSource) ClientAuthentication {
	return assertionClient{client{clientID}, source}
}

func (assertionClient) method() string { return "client_assertion" }

func (c assertionClient) check() error {
	if c.source == nil {
		return self.Misconfigured("pass a source such as auth.NewFileTokenSource", "the client assertion has no source")
	}
	if c.clientID == "" {
		return nil
	}
	return c.client.check()
}

func (c assertionClient) authenticate(ctx context.Context, r *tokenRequest) error {
	jwt, err := ownToken(ctx, c.source, "the client assertion", []string{r.provider.assertionAudience()}, r.opts)
	if err != nil {
		return err
	}
	r.setAssertion(jwt, c.clientID)
	return nil
}

func (p *Provider) assertionAudience() string {
	return cmp.Or(p.ClientAudience, p.learn().audiences[0])
}
