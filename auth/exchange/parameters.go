package exchange

import (
	"fmt"
	"maps"
	"net/textproto"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth/internal/oauth"
)

// Values of auth.Error.Option.
const (
	optionGrant      = "exchange.Provider.Grant"
	optionParameters = "exchange.Provider.Parameters"
	optionAnnotated  = "exchange.Provider.AnnotatedParameters"
	optionHeaders    = "exchange.Provider.Headers"
)

// parameter is one of Provider.Parameters, or of AnnotatedParameters if it has
// an annotation.
type parameter struct {
	name, value, annotation, key string
	folds                        bool
}

// reserved are parameters that a Provider's other fields set.
var reserved = []string{"grant_type", "assertion", "client_secret", "audience", "resource", "scope",
	"requested_token_type", "jwt"}

func (p *Provider) prepareParameters() (list []parameter) {
	for name, value := range p.Parameters {
		list = append(list, parameter{name: name, value: value})
	}
	for name, annotation := range p.AnnotatedParameters {
		list = append(list, parameter{name: name, annotation: annotation, key: "exchangeParameter " + name,
			folds: p.form().ignoresCase(name)})
	}
	slices.SortFunc(list, func(a, b parameter) int { return strings.Compare(a.name, b.name) })
	return list
}

// checkForm refuses fields that the grant or the service cannot use.
func (p *Provider) checkForm(list []parameter) error {
	if !slices.Contains([]Grant{GrantTokenExchange, GrantJWTBearer, GrantClientCredentials}, p.Grant) {
		return self.Misconfigured("use one of the constants", "%.100q is not a grant", p.Grant).About(optionGrant)
	}
	if err := p.form().check(p); err != nil {
		return err
	}
	if option := p.unsent(p.form().sends(p.Grant)); option != "" {
		return self.Misconfigured("leave it out", "%s cannot be sent in this form", option).About(option)
	}
	return p.checkParameters(list)
}

func (p *Provider) checkParameters(list []parameter) error {
	for i, one := range list {
		option := optionParameters
		if one.annotation != "" {
			option = optionAnnotated
		}
		switch {
		case i > 0 && list[i-1].name == one.name:
			return self.Misconfigured("leave one out", "the parameter %.100q is fixed and annotated",
				one.name).About(optionParameters, optionAnnotated)
		case !oauth.ValidScope(one.name) || p.reserves(one.name) || one.name == "client_id" && p.Client != nil:
			return self.Misconfigured("leave it out; other fields set it", "the parameter %.100q is reserved or malformed",
				one.name).About(option)
		case one.annotation == "" && (one.value == "" || strings.ContainsFunc(one.value, func(r rune) bool {
			return r < ' ' || r > '~'
		})):
			return self.Misconfigured("set it to printable ASCII", "the parameter %.100q is empty or malformed",
				one.name).About(option)
		}
	}
	takes := p.form().parameters()
	for _, one := range list {
		if takes != nil && !slices.Contains(takes, one.name) {
			return self.Misconfigured("leave it out", "%s takes no parameter %.100q", p.form().title(),
				one.name).About(optionParameters, optionAnnotated)
		}
	}
	for _, name := range takes {
		if !slices.ContainsFunc(list, func(one parameter) bool { return one.name == name }) {
			return self.Misconfigured("set it, or name its annotation", "%s needs the parameter %q", p.form().title(),
				name).About(optionParameters, optionAnnotated)
		}
	}
	return p.checkHeaders()
}

func (p *Provider) checkHeaders() error {
	reserved := slices.AppendSeq([]string{"Authorization", "Content-Type", "Content-Length", "Accept", "Host"},
		maps.Keys(p.form().headers()))
	for name, value := range p.headers() {
		h := textproto.CanonicalMIMEHeaderKey(name)
		_, own := p.Headers[name]
		if h == "" || strings.Trim(h, headerLetters) != "" || own && slices.Contains(reserved, h) ||
			strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
			return self.Misconfigured("leave it out, or correct it", "the header %.100q is reserved or malformed",
				name).About(optionHeaders)
		}
	}
	return nil
}

const headerLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"

// reserves applies to the forms of OAuth. A service with a form of its own
// names its parameters.
func (p *Provider) reserves(name string) bool {
	if slices.Contains(p.form().parameters(), name) {
		return false
	}
	return slices.Contains(reserved, name) || strings.HasPrefix(name, "subject_") || strings.HasPrefix(name, "actor_") ||
		strings.HasPrefix(name, "client_assertion")
}

// valueFor returns the value for a ServiceAccount. The ServiceAccount is nil
// for the controller itself.
func (one *parameter) valueFor(sa *corev1.ServiceAccount) (string, error) {
	switch {
	case one.annotation == "":
		return one.value, nil
	case sa == nil:
		return "", self.Misconfigured("name a ServiceAccount, or set the parameter for all",
			"the parameter %q comes from an annotation of a ServiceAccount", one.name).About(optionAnnotated,
			"auth.WithServiceAccount")
	}
	value, ok := sa.Annotations[one.annotation]
	switch {
	case !ok:
		return "", self.Misconfigured(fmt.Sprintf("set it to the %s that the service knows", one.name),
			"the annotation %q is missing", one.annotation)
	case !validParameter(value):
		return "", self.Misconfigured("use 1 to 256 characters of A-Z, a-z, 0-9 and ._:/@+-",
			"the annotation %q is malformed: %.300q", one.annotation, value)
	}
	return value, nil
}

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

// identity returns the value of a single annotated parameter, or several as
// name=value,name=value.
func (c *config) identity(sa *corev1.ServiceAccount) (string, error) {
	var all string
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
		all += "," + one.name + "=" + value
	}
	return strings.TrimPrefix(all, ","), nil
}
