package credentials

import (
	"maps"
	"slices"
	"strings"

	"github.com/workloadid/workloadid/auth/exchange"
)

// serviceFlags are those of --provider exchange with --service.
type serviceFlags struct {
	service, address string
	parameters       repeated
}

// newService makes the Provider of a service: from its address, its parameters and the audience of --audience.
type newService func(address string, parameter func(name string) string, audience string) *exchange.Provider

func services() map[string]newService {
	return map[string]newService{
		"anthropic": func(_ string, parameter func(string) string, audience string) *exchange.Provider {
			return exchange.NewAnthropic(parameter("organization_id"), parameter("federation_rule_id"), audience)
		},
		"confluent": func(_ string, _ func(string) string, audience string) *exchange.Provider {
			return exchange.NewConfluent(audience)
		},
		"databricks": func(address string, _ func(string) string, audience string) *exchange.Provider {
			return exchange.NewDatabricks(address, audience)
		},
		"docker-hub": func(_ string, parameter func(string) string, _ string) *exchange.Provider {
			return exchange.NewDockerHub(parameter("organization"))
		},
		"keycloak": func(address string, _ func(string) string, _ string) *exchange.Provider {
			return exchange.NewKeycloak(address)
		},
		"octo-sts": func(address string, _ func(string) string, _ string) *exchange.Provider {
			return exchange.NewOctoSTS(hostOr(address, "octo-sts.dev"))
		},
		"openai": func(_ string, parameter func(string) string, _ string) *exchange.Provider {
			return exchange.NewOpenAI(parameter("identity_provider_id"))
		},
		"quay": func(address string, _ func(string) string, _ string) *exchange.Provider {
			return exchange.NewQuay(hostOr(address, "quay.io"))
		},
		"tailscale": func(string, func(string) string, string) *exchange.Provider { return exchange.NewTailscale() },
		"vault": func(address string, parameter func(string) string, audience string) *exchange.Provider {
			return exchange.NewVault(exchange.VaultServer{Address: address, Mount: parameter("mount"), Namespace: parameter("namespace"), KubernetesAudience: audience})
		},
	}
}

func hostOr(address, host string) string {
	if address == "" {
		return host
	}
	return strings.TrimSuffix(strings.TrimPrefix(address, "https://"), "/")
}

// addressProblem is what is wrong with --service-address. Only some services have an address of each customer's.
func (f *serviceFlags) addressProblem() string {
	switch f.service {
	case "databricks", "keycloak", "vault":
		if f.address == "" {
			return "pass the https URL of the service with --service-address"
		}
	case "octo-sts", "quay": // theirs is the default
	default:
		if f.address != "" {
			return "this service has one address: leave --service-address out"
		}
	}
	return ""
}

func serviceNames() string { return strings.Join(slices.Sorted(maps.Keys(services())), ", ") }

// givesExchange reports whether a flag of a plain OAuth server was given.
func (id *Identity) givesExchange() bool {
	return slices.ContainsFunc(id.Settings(), func(s Setting) bool { return id.given[s.Name] && strings.HasPrefix(s.Name, "exchange-") })
}

// provider returns the Provider of the service. A parameter that the caller gives replaces an annotation.
func (f *serviceFlags) provider(audience string) *exchange.Provider {
	given := map[string]string{}
	for _, parameter := range f.parameters {
		name, value, _ := strings.Cut(parameter, "=")
		given[name] = value
	}
	p := services()[f.service](f.address, func(name string) string {
		value := given[name]
		delete(given, name)
		return value
	}, audience)
	for name, value := range given {
		if p.Parameters == nil {
			p.Parameters = map[string]string{}
		}
		p.Parameters[name] = value
		delete(p.AnnotatedParameters, name)
	}
	if audience != "" {
		p.KubernetesAudience = audience
	}
	return p
}
