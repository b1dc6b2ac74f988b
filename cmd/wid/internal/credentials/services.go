package credentials

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// serviceFlags are the flags of --provider exchange with --service.
type serviceFlags struct {
	service, address string
	parameters       repeated
}

// service makes the Provider of a service. take returns a parameter that is an
// argument of the constructor.
type service struct {
	parameters string // all that it takes, separated by blanks; "" is any
	address    string // its default; needed if there is none; "-" if all customers share one
	provider   func(address, audience string, take func(name string) string) *exchange.Provider
}

type taking = func(name string) string

const needed = ""

func services() map[string]service {
	return map[string]service{
		"anthropic": {"organization_id federation_rule_id service_account_id workspace_id", "-",
			func(_, audience string, take taking) *exchange.Provider {
				return exchange.NewAnthropic(take("organization_id"), take("federation_rule_id"), audience)
			}},
		"confluent": {"identity_pool_id", "-", func(_, audience string, _ taking) *exchange.Provider {
			return exchange.NewConfluent(audience)
		}},
		"databricks": {"client_id", needed, func(address, audience string, _ taking) *exchange.Provider {
			return exchange.NewDatabricks(address, audience)
		}},
		"docker-hub": {"organization connection_id expires_in", "-", func(_, _ string, take taking) *exchange.Provider {
			return exchange.NewDockerHub(take("organization"))
		}},
		"keycloak": {"", needed, func(address, _ string, _ taking) *exchange.Provider {
			return exchange.NewKeycloak(address)
		}},
		"octo-sts": {"scope identity", "octo-sts.dev", func(address, _ string, _ taking) *exchange.Provider {
			return exchange.NewOctoSTS(hostOf(address))
		}},
		"openai": {"identity_provider_id service_account_id client_id", "-",
			func(_, _ string, take taking) *exchange.Provider {
				return exchange.NewOpenAI(take("identity_provider_id"))
			}},
		"quay": {"robot", "quay.io", func(address, _ string, _ taking) *exchange.Provider {
			return exchange.NewQuay(hostOf(address))
		}},
		"tailscale": {"client_id", "-", func(_, _ string, _ taking) *exchange.Provider { return exchange.NewTailscale() }},
		"vault": {"role mount namespace", needed, func(address, audience string, take taking) *exchange.Provider {
			return exchange.NewVault(exchange.VaultServer{Address: address, Mount: take("mount"), Namespace: take("namespace"),
				KubernetesAudience: audience})
		}},
	}
}

func hostOf(address string) string {
	return strings.TrimSuffix(strings.TrimPrefix(address, "https://"), "/")
}

func (f *serviceFlags) check() error {
	s, known := services()[f.service]
	switch {
	case f.service == "":
		return nil
	case !known:
		return cli.Usagef("--service %.100q is unknown: use one of: %s", f.service, serviceNames())
	case s.address == needed && f.address == "":
		return cli.Usagef("pass the https URL of the service with --service-address")
	case s.address == "-" && f.address != "":
		return cli.Usagef("this service has one address: leave --service-address out")
	}
	for _, parameter := range f.parameters {
		name, _, _ := strings.Cut(parameter, "=")
		if takes := strings.Fields(s.parameters); len(takes) > 0 && !slices.Contains(takes, name) {
			return cli.Usagef("--service %s takes no parameter %.100q, but: %s", f.service, name, strings.Join(takes, ", "))
		}
	}
	return nil
}

func serviceNames() string { return strings.Join(slices.Sorted(maps.Keys(services())), ", ") }

// givesExchange reports whether a flag of a plain OAuth server was given.
func (id *Identity) givesExchange() bool {
	return slices.ContainsFunc(id.Settings(), func(s Setting) bool {
		return id.given[s.Name] && strings.HasPrefix(s.Name, "exchange-")
	})
}

// provider returns the Provider of the service. A parameter that the caller
// gives replaces an annotation.
func (f *serviceFlags) provider(audience string) *exchange.Provider {
	given := map[string]string{}
	for _, parameter := range f.parameters {
		name, value, _ := strings.Cut(parameter, "=")
		given[name] = value
	}
	s := services()[f.service]
	p := s.provider(cmp.Or(f.address, s.address), audience, func(name string) string {
		value := given[name]
		delete(given, name)
		return value
	})
	for name, value := range given {
		if p.Parameters == nil {
			p.Parameters = map[string]string{}
		}
		p.Parameters[name] = value
		delete(p.AnnotatedParameters, name)
	}
	p.KubernetesAudience = cmp.Or(audience, p.KubernetesAudience)
	return p
}
