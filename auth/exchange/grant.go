package exchange

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/oauth"
)

// Grant says how the tenant's token is presented to the server: the grant_type of OAuth 2.0.
type Grant string

const (
	// GrantTokenExchange presents it as subject token (RFC 8693). It is the default.
	GrantTokenExchange Grant = ""
	// GrantJWTBearer presents it as assertion (RFC 7523, section 2.1).
	GrantJWTBearer Grant = "urn:ietf:params:oauth:grant-type:jwt-bearer"
	// GrantClientCredentials presents it as assertion of the client (RFC 7523, section 2.2): the tenant is the client.
	// ServiceAccountAssertion is the controller's own.
	GrantClientCredentials Grant = "client_credentials"
)

// Values of auth.Error.Option.
const (
	optionGrant      = "exchange.Provider.Grant"
	optionParameters = "exchange.Provider.Parameters"
	optionAnnotated  = "exchange.Provider.AnnotatedParameters"
	optionHeaders    = "exchange.Provider.Headers"
)

// annotationPrefix begins the annotations of services that define none.
const annotationPrefix = "workloadid.github.io/"

// protocol is a service whose form is not OAuth's. A nil function, and a nil protocol, are OAuth's.
type protocol struct {
	name       string   // for errors and the cache key
	parameters []string // those that the service needs, each fixed or annotated; nil: any
	problem    error    // of the constructor's arguments
	headers    map[string]string
	// audience begins that of the ServiceAccount's token, where the value of the only parameter ends it.
	audience string
	// request is built anew for each try.
	request func(context.Context, *tokenRequest) (*http.Request, error)
	answer  func(oauth.Object) (oauth.Answer, *auth.Error)
	// reasons wins over OAuth's codes, in the answers of the service itself.
	reasons map[int]provider.Reason
	place   string // where the service looks, for the remedy of ErrMisconfigured
	// registries are hosts whose password is the issued token, for the user that registryUser returns.
	registries   []string
	key          string   // tells services of one name apart
	foldsCase    []string // parameters whose case the service ignores: Policies see them in lower case
	ownAudience  bool     // the service publishes no audience: KubernetesAudience is required
	takesOnce    bool     // the service takes a token once, so that no request is repeated
	registryUser func(parameters map[string]string) string
}

// headers are those of a request, with those of the service.
func (p *Provider) headers() map[string]string {
	if p.protocol == nil || len(p.protocol.headers) == 0 {
		return p.Headers
	}
	all := maps.Clone(p.protocol.headers)
	maps.Copy(all, p.Headers)
	return all
}

// parameter is one of Provider.Parameters, or of AnnotatedParameters if it has an annotation.
type parameter struct {
	name, value, annotation, key string
	folds                        bool
}

// reserved are parameters that a Provider's other fields set.
var reserved = []string{"grant_type", "assertion", "client_secret", "audience", "resource", "scope", "requested_token_type", "jwt"}

func (p *Provider) prepareParameters() (list []parameter) {
	for name, value := range p.Parameters {
		list = append(list, parameter{name: name, value: value})
	}
	for name, annotation := range p.AnnotatedParameters {
		list = append(list, parameter{name: name, annotation: annotation, key: "exchangeParameter " + name,
			folds: p.protocol != nil && slices.Contains(p.protocol.foldsCase, name)})
	}
	slices.SortFunc(list, func(a, b parameter) int { return strings.Compare(a.name, b.name) })
	return list
}

// checkForm refuses fields that the grant or the service cannot use.
func (p *Provider) checkForm(list []parameter) error {
	if !slices.Contains([]Grant{GrantTokenExchange, GrantJWTBearer, GrantClientCredentials}, p.Grant) {
		return self.Misconfigured("use one of the constants", "%.100q is not a grant", p.Grant).About(optionGrant)
	}
	if p.protocol != nil && p.protocol.ownAudience && p.KubernetesAudience == "" {
		return self.Misconfigured("name the one that its configuration has", "%s publishes no audience for Kubernetes tokens", p.protocol.name).
			About("exchange.Provider.KubernetesAudience")
	}
	unused := p.unused()
	for _, option := range slices.Sorted(maps.Keys(unused)) {
		if unused[option] {
			return self.Misconfigured("leave it out", "%s cannot be sent in this form", option).About(option)
		}
	}
	return p.checkParameters(list)
}

// unused reports of each field that the form cannot send whether it is set.
func (p *Provider) unused() map[string]bool {
	fields := map[string]bool{}
	own := p.protocol != nil && p.protocol.request != nil
	if own || p.Grant != GrantTokenExchange {
		maps.Copy(fields, map[string]bool{
			"exchange.Provider.ActorToken":       p.ActorToken != nil,
			"exchange.Provider.ActorTokenType":   p.ActorTokenType != "",
			"exchange.Provider.SubjectTokenType": p.SubjectTokenType != "",
			optionTokenType:                      p.RequestedTokenType != "",
		})
	}
	if own || p.Grant == GrantClientCredentials { // where the tenant is the client
		fields["exchange.Provider.Client"] = p.Client != nil
		fields["exchange.Provider.ClientAudience"] = p.ClientAudience != ""
	}
	if own {
		maps.Copy(fields, map[string]bool{
			optionGrant:                              p.Grant != "",
			optionIssuer:                             p.IssuerURL != "",
			"exchange.Provider.AllowedAudiences":     len(p.AllowedAudiences) > 0,
			"exchange.Provider.AllowedEndpointHosts": len(p.AllowedEndpointHosts) > 0,
			"exchange.Provider.AllowedResources":     len(p.AllowedResources) > 0,
			"exchange.Provider.Audience":             p.Audience != "",
			"exchange.Provider.DefaultScopes":        len(p.DefaultScopes) > 0,
			"exchange.Provider.JSONBody":             p.JSONBody,
			"exchange.Provider.Resource":             p.Resource != "",
		})
	}
	if p.protocol != nil && p.protocol.answer != nil {
		fields["exchange.Provider.AssumeBearer"] = p.AssumeBearer
	}
	return fields
}

func (p *Provider) checkParameters(list []parameter) error {
	for i, one := range list {
		option := optionParameters
		if one.annotation != "" {
			option = optionAnnotated
		}
		switch {
		case i > 0 && list[i-1].name == one.name:
			return self.Misconfigured("leave one out", "the parameter %.100q is fixed and annotated", one.name).About(optionParameters, optionAnnotated)
		case !oauth.ValidScope(one.name) || p.reserves(one.name) || one.name == "client_id" && p.Client != nil:
			return self.Misconfigured("leave it out; other fields set it", "the parameter %.100q is reserved or malformed", one.name).About(option)
		case one.annotation == "" && (one.value == "" || strings.ContainsFunc(one.value, func(r rune) bool { return r < ' ' || r > '~' })):
			return self.Misconfigured("set it to printable ASCII", "the parameter %.100q is empty or malformed", one.name).About(option)
		}
	}
	if s := p.protocol; s != nil && s.parameters != nil {
		for _, one := range list {
			if !slices.Contains(s.parameters, one.name) {
				return self.Misconfigured("leave it out", "%s takes no parameter %.100q", s.name, one.name).About(optionParameters, optionAnnotated)
			}
		}
		for _, name := range s.parameters {
			if !slices.ContainsFunc(list, func(one parameter) bool { return one.name == name }) {
				return self.Misconfigured("set it, or name its annotation", "%s needs the parameter %q", s.name, name).About(optionParameters, optionAnnotated)
			}
		}
	}
	return p.checkHeaders()
}

func (p *Provider) checkHeaders() error {
	reserved := []string{"Authorization", "Content-Type", "Content-Length", "Accept", "Host"}
	if p.protocol != nil {
		reserved = slices.AppendSeq(reserved, maps.Keys(p.protocol.headers))
	}
	for name, value := range p.headers() {
		h := textproto.CanonicalMIMEHeaderKey(name)
		_, own := p.Headers[name]
		if h == "" || strings.Trim(h, headerLetters) != "" || own && slices.Contains(reserved, h) ||
			strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
			return self.Misconfigured("leave it out, or correct it", "the header %.100q is reserved or malformed", name).About(optionHeaders)
		}
	}
	return nil
}

const headerLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"

// reserves holds for OAuth's forms: a service with a form of its own names its parameters.
func (p *Provider) reserves(name string) bool {
	if p.protocol != nil && slices.Contains(p.protocol.parameters, name) {
		return false
	}
	return slices.Contains(reserved, name) || strings.HasPrefix(name, "subject_") || strings.HasPrefix(name, "actor_") || strings.HasPrefix(name, "client_assertion")
}

// valueFor returns the value for a ServiceAccount, which is nil for the controller itself.
func (one *parameter) valueFor(sa *corev1.ServiceAccount) (string, error) {
	switch {
	case one.annotation == "":
		return one.value, nil
	case sa == nil:
		return "", self.Misconfigured("name a ServiceAccount, or set the parameter for all",
			"the parameter %q comes from an annotation of a ServiceAccount", one.name).About(optionAnnotated, "auth.WithServiceAccount")
	}
	value, ok := sa.Annotations[one.annotation]
	switch {
	case !ok:
		return "", self.Misconfigured(fmt.Sprintf("set it to the %s that the service knows", one.name), "the annotation %q is missing", one.annotation)
	case !validParameter(value):
		return "", self.Misconfigured("use 1 to 256 characters of A-Z, a-z, 0-9 and ._:/@+-",
			"the annotation %q is malformed: %.300q", one.annotation, value)
	}
	return value, nil
}

// validRobot: a colon would end the user name, and give another robot the token.
func validRobot(robot string) bool { return robot != "" && !strings.Contains(robot, ":") }

func validParameter(value string) bool {
	if value == "" || len(value) > 256 {
		return false
	}
	for i := range len(value) {
		c := value[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && strings.IndexByte("._:/@+-", c) < 0 {
			return false
		}
	}
	return true
}

// values returns all parameters of a request.
func (c *config) values(sa *corev1.ServiceAccount) (map[string]string, error) {
	if len(c.parameters) == 0 {
		return nil, nil
	}
	values := make(map[string]string, len(c.parameters))
	for i := range c.parameters {
		value, err := c.parameters[i].valueFor(sa)
		if err != nil {
			return nil, err
		}
		values[c.parameters[i].name] = value
	}
	return values, nil
}

// identity returns the annotated parameters: the value of a single one, else name=value,name=value.
func (c *config) identity(sa *corev1.ServiceAccount) (string, error) {
	var on [640]byte // the stack
	all := on[:0]
	for i := range c.parameters {
		one := &c.parameters[i]
		if one.annotation == "" {
			continue
		}
		value, err := one.valueFor(sa)
		if err != nil {
			return "", err
		}
		if one.folds {
			value = strings.ToLower(value)
		}
		if c.annotated == 1 {
			return value, nil
		}
		if len(all) > 0 {
			all = append(all, ',')
		}
		all = append(append(append(all, one.name...), '='), value...)
	}
	if len(all) == 0 {
		return "", nil
	}
	return c.texts.intern(all)[0], nil
}

// fields are the form of the grant.
func (r *tokenRequest) fields() url.Values {
	form := url.Values{}
	switch p := r.provider; p.Grant {
	case GrantJWTBearer:
		form.Set("assertion", r.SubjectToken)
	case GrantClientCredentials:
		form.Set("client_assertion_type", oauth.AssertionType)
		form.Set("client_assertion", r.SubjectToken)
	default:
		form = r.Form()
	}
	if r.provider.Grant != GrantTokenExchange {
		for name, value := range map[string]string{"grant_type": string(r.provider.Grant), "audience": r.Audience, "resource": r.Resource, "scope": r.Scope} {
			if value != "" {
				form.Set(name, value)
			}
		}
	}
	for name, value := range r.parameters {
		form.Set(name, value)
	}
	return form
}

// newRequest is a request in OAuth's form.
func (r *tokenRequest) newRequest(ctx context.Context) (*http.Request, error) {
	r.form, r.authorization = r.fields(), ""
	if c := r.provider.Client; c != nil {
		if err := c.settings().authenticate(ctx, r); err != nil {
			return nil, err
		}
	}
	newRequest := func() (*http.Request, error) { return oauth.NewRequest(ctx, r.endpoint.String(), r.form) }
	if r.provider.JSONBody {
		members := make(map[string]string, len(r.form))
		for name := range r.form {
			members[name] = r.form.Get(name)
		}
		newRequest = func() (*http.Request, error) { return newJSONRequest(ctx, r.endpoint.String(), members) }
	}
	req, err := newRequest()
	if err == nil && r.authorization != "" {
		req.Header.Set("Authorization", r.authorization)
	}
	return req, err
}

func newJSONRequest(ctx context.Context, endpoint string, members map[string]string) (*http.Request, error) {
	body, err := json.Marshal(members)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	return req, nil
}
