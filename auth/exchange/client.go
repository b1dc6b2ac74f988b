package exchange

import (
	"cmp"
	"context"
	"encoding/base64"
	"net/url"
	"strings"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/internal/oauth"
)

// ClientAuthentication authenticates the controller to the server as a client
// (RFC 6749, section 2.3). [PublicClient], [ClientSecretBasic] and
// [ServiceAccountAssertion] make one. It is safe for concurrent use.
type ClientAuthentication interface{ settings() *client }

type client struct {
	method, id   string
	problem      error // of the arguments
	authenticate func(ctx context.Context, r *tokenRequest) error
}

func (c *client) settings() *client { return c }

// checkID accepts a client-id of RFC 6749, appendix A.1.
func checkID(id string) error {
	if id == "" || strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r > '~' }) {
		return self.Misconfigured("use the ID under which the controller is registered", "%.100q is not a client ID", id)
	}
	return nil
}

// PublicClient names the client without a proof (token_endpoint_auth_method
// none).
func PublicClient(clientID string) ClientAuthentication {
	return &client{method: "none", id: clientID, problem: checkID(clientID),
		authenticate: func(_ context.Context, r *tokenRequest) error {
			r.form.Set("client_id", clientID)
			return nil
		}}
}

// A SecretFunc returns the client's secret. Read it from a file or an informer:
// every exchange calls the function, so it uses a replaced secret at once.
// Calls are concurrent, and have to honour the context.
type SecretFunc func(ctx context.Context) (string, error)

// ClientSecretBasic sends the client's secret in the Authorization header
// (client_secret_basic).
func ClientSecretBasic(clientID string, secret SecretFunc) ClientAuthentication {
	c := &client{method: "client_secret_basic", id: clientID, problem: checkID(clientID)}
	if secret == nil {
		c.problem = self.Misconfigured("pass a function that returns the secret", "the client %.100q has no secret", clientID)
	}
	c.authenticate = func(ctx context.Context, r *tokenRequest) error {
		value, err := secret(ctx)
		if err != nil {
			return unavailable(err, "the client's secret is not available: ", value)
		}
		if value == "" {
			return self.Misconfigured("have the function return the secret or an error", "the secret of client %.100q is empty",
				clientID)
		}
		// Both are form-encoded first (RFC 6749, section 2.3.1), because a
		// colon would end the ID.
		basic := base64.StdEncoding.EncodeToString([]byte(url.QueryEscape(clientID) + ":" + url.QueryEscape(value)))
		r.addSecrets(value, url.QueryEscape(value), basic)
		r.authorization = "Basic " + basic
		return nil
	}
	return c
}

// ServiceAccountAssertion authenticates with a token of the controller's own
// ServiceAccount (RFC 7521, section 4.2). The server has to trust the cluster's
// issuer for clients. No secret is stored anywhere. Every exchange asks the
// source; [auth.NewFileTokenSource] reads a projected volume. The client ID is
// optional if the server finds the client by the token's subject.
func ServiceAccountAssertion(clientID string, source auth.SubjectTokenSource) ClientAuthentication {
	c := &client{method: "client_assertion", id: clientID}
	if clientID != "" {
		c.problem = checkID(clientID)
	}
	if source == nil {
		c.problem = self.Misconfigured("pass a source such as auth.NewFileTokenSource", "the client assertion has no source")
	}
	c.authenticate = func(ctx context.Context, r *tokenRequest) error {
		audience := cmp.Or(r.provider.ClientAudience, r.provider.learn().audiences[0])
		jwt, err := ownToken(ctx, source, "the client assertion", []string{audience}, r.opts)
		if err != nil {
			return err
		}
		r.addSecrets(jwt)
		r.form.Set("client_assertion_type", oauth.AssertionType)
		r.form.Set("client_assertion", jwt)
		if clientID != "" {
			r.form.Set("client_id", clientID)
		}
		return nil
	}
	return c
}
