package exchange

import (
	"context"
	"maps"
	"net/http"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/internal/oauth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/exactjson"
	"github.com/workloadid/workloadid/internal/transport"
)

// annotationPrefix begins the annotations for services that define none.
const annotationPrefix = "workloadid.github.io/"

// service is an authorization server as its constructor knows it. A service
// embeds oauthForm, whose methods follow OAuth 2.0, and replaces the methods
// that differ. Its value is a part of the cache key.
type service interface {
	// title returns the service's own spelling of its name. It is empty for a
	// server that no constructor knows.
	title() string
	// check refuses arguments of the constructor.
	check(*Provider) error
	// checkOptions refuses options of a call.
	checkOptions(*provider.Options) error
	// sends returns the fields of a Provider that the form can send.
	sends(Grant) fields
	// parameters returns the parameters of the form, each of which is required.
	// Nil means any.
	parameters() []string
	// ignoresCase reports whether the service ignores the case of a parameter.
	// Policies see it in lower case.
	ignoresCase(parameter string) bool
	// audiences returns the audiences of the ServiceAccount's token if
	// Provider.KubernetesAudience is empty.
	audiences(*config, *corev1.ServiceAccount) ([]string, error)
	headers() map[string]string

	// request builds a request anew for each try.
	request(context.Context, *tokenRequest) (*http.Request, error)
	send(context.Context, *http.Client, *tokenRequest) (transport.Answer, error)
	answer(*Provider, exactjson.Object) (oauth.Answer, *auth.Error)
	// reason takes precedence over OAuth's codes in the service's own refusals.
	// An empty reason leaves the decision to the codes. The place is where the
	// service keeps its settings, for the remedy of ErrMisconfigured.
	reason(status int) (reason provider.Reason, place string)
}

// registry is a service whose issued token is the password of container
// registries.
type registry interface {
	hosts() []string
	user(parameters map[string]string) string
}

// form returns the service. Without a constructor it is plain OAuth 2.0.
func (p *Provider) form() service {
	if p.service == nil {
		return oauthForm{}
	}
	return p.service
}

// headers returns the headers of a request, including the service's.
func (p *Provider) headers() map[string]string {
	own := p.form().headers()
	if len(own) == 0 {
		return p.Headers
	}
	all := maps.Clone(own)
	maps.Copy(all, p.Headers)
	return all
}

// fields are groups of a Provider's fields that only some forms can send.
type fields uint8

const (
	fieldsOfExchange fields = 1 << iota // of RFC 8693
	fieldsOfClient
	fieldsOfOAuth
	fieldsOfBearer
	allFields = fieldsOfExchange | fieldsOfClient | fieldsOfOAuth | fieldsOfBearer
)

// unsent returns the first field, by name, that is set although the form does
// not send it. It returns "" if there is none.
func (p *Provider) unsent(sends fields) (option string) {
	for _, field := range []struct {
		option string
		group  fields
		set    bool
	}{
		{"exchange.Provider.ActorToken", fieldsOfExchange, p.ActorToken != nil},
		{"exchange.Provider.ActorTokenType", fieldsOfExchange, p.ActorTokenType != ""},
		{"exchange.Provider.AllowedAudiences", fieldsOfOAuth, len(p.AllowedAudiences) > 0},
		{"exchange.Provider.AllowedEndpointHosts", fieldsOfOAuth, len(p.AllowedEndpointHosts) > 0},
		{"exchange.Provider.AllowedResources", fieldsOfOAuth, len(p.AllowedResources) > 0},
		{"exchange.Provider.AssumeBearer", fieldsOfBearer, p.AssumeBearer},
		{"exchange.Provider.Audience", fieldsOfOAuth, p.Audience != ""},
		{"exchange.Provider.Client", fieldsOfClient, p.Client != nil},
		{"exchange.Provider.ClientAudience", fieldsOfClient, p.ClientAudience != ""},
		{"exchange.Provider.DefaultScopes", fieldsOfOAuth, len(p.DefaultScopes) > 0},
		{"exchange.Provider.Grant", fieldsOfOAuth, p.Grant != ""},
		{"exchange.Provider.IssuerURL", fieldsOfOAuth, p.IssuerURL != ""},
		{"exchange.Provider.JSONBody", fieldsOfOAuth, p.JSONBody},
		{"exchange.Provider.RequestedTokenType", fieldsOfExchange, p.RequestedTokenType != ""},
		{"exchange.Provider.Resource", fieldsOfOAuth, p.Resource != ""},
		{"exchange.Provider.SubjectTokenType", fieldsOfExchange, p.SubjectTokenType != ""},
	} {
		if field.set && field.group&sends == 0 {
			return field.option
		}
	}
	return ""
}

// ownForm is the form of a service that differs from OAuth's. It takes exactly
// its own parameters and no scopes.
type ownForm struct {
	oauthForm
	takes []string
}

func newOwnForm(name string, parameters ...string) ownForm {
	return ownForm{oauthForm{name: name}, parameters}
}

func (ownForm) sends(Grant) fields     { return 0 }
func (f ownForm) parameters() []string { return f.takes }

func (f ownForm) checkOptions(opts *provider.Options) error {
	if len(opts.Scopes) == 0 {
		return nil
	}
	return self.Misconfigured("leave them out", "%s takes no scopes, got %.100q", f.name, opts.Scopes).
		About("auth.WithScopes")
}

// tokenForm is an ownForm whose answer is the member token or a refusal.
type tokenForm struct{ ownForm }

//nolint:unparam // of the interface
func (tokenForm) answer(_ *Provider, o exactjson.Object) (oauth.Answer, *auth.Error) {
	token := o.Text("token")
	return oauth.Answer{AccessToken: token, TokenType: "Bearer", ExpiresIn: o.Seconds("expires_in"), Failed: token == "",
		Description: o.Text("message")}, nil
}
