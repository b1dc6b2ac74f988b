package azure

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/address"
	"github.com/workloadid/workloadid/internal/azurename"
	"github.com/workloadid/workloadid/internal/input"
)

// Cloud describes a private cloud, such as Azure Stack.
type Cloud struct {
	// AuthorityHost is the address of its token service,
	// https://<host>[:<port>]. It receives the tokens of ServiceAccounts.
	// Required.
	AuthorityHost string
	// ResourceManagerEndpoint is the address of its Azure Resource Manager.
	// Without it, scopes have no default and clusters cannot be named, unless
	// AuthorityHost belongs to one of Microsoft's clouds.
	ResourceManagerEndpoint string
	// ResourceManagerAudience is the audience of tokens for Azure Resource
	// Manager. Empty: its address. A trailing slash counts.
	ResourceManagerAudience string
	// RegistrySuffix is the domain of its container registries, such as
	// "azurecr.region.example". Optional. They receive tokens for Azure
	// Resource Manager, so with an authority of Microsoft's set
	// ResourceManagerAudience or ResourceManagerEndpoint too.
	RegistrySuffix string
	// Audience is the audience of the ServiceAccount tokens that AuthorityHost
	// receives. Empty: AuthorityHost, or the audience of Microsoft's cloud if
	// the authority is Microsoft's. The operator of a cloud can use such a
	// token wherever its audience is trusted, so give each cloud another one.
	Audience string
}

// environment is a cloud in the form that calls need.
type environment struct {
	name        string
	authorities []string     // hosts, with the port if it is not 443; the first is the default
	management  string       // the host of Azure Resource Manager, "" if unknown
	registry    string       // the domain of container registries, "" if there are none
	public      bool         // Azure DevOps accepts its tokens
	microsoft   *environment // Microsoft's cloud, if a private cloud uses its authority
	audiences   [1]string    // of ServiceAccount tokens

	// Prepared, because calls that the cache answers need them too.
	defaultScopes []string
	registryScope []provider.Option
	clusterScopes [][]provider.Option // AKS, Azure Resource Manager
}

// prepare sets the scopes. The audience keeps its trailing slash, as in azcore:
// Entra ID compares audiences byte by byte.
func (e *environment) prepare(audience, registryAudience string) *environment {
	e.registryScope = scope(registryAudience)
	e.clusterScopes = [][]provider.Option{scope(azurename.ClusterAudience), scope(audience)}
	if audience != "" {
		e.defaultScopes = []string{audience + "/.default"}
	}
	return e
}

func scope(audience string) []provider.Option {
	if audience == "" {
		return nil
	}
	scopes := []string{audience + "/.default"}
	return []provider.Option{func(o *provider.Options) { o.Scopes = scopes }}
}

// surroundings hold what a Provider learns once from its fields and from the
// environment.
type surroundings struct {
	tenant       string // AZURE_TENANT_ID
	environments []*environment
	standard     *environment // for calls that name no authority
	gitScope     []provider.Option
	proxy        *tokenProxy // nil without IdentityBindings
	err          error
}

func (p *Provider) learn() *surroundings {
	p.once.Do(func() {
		s := &p.learned
		s.tenant = os.Getenv("AZURE_TENANT_ID")
		s.gitScope = scope(azurename.DevOpsAudience)
		if s.err = s.findEnvironments(p); s.err != nil {
			return
		}
		audience := p.Audience
		if p.IdentityBindings {
			audience = IdentityBindingAudience
			s.proxy, s.err = p.findTokenProxy()
		}
		s.standard.audiences[0] = cmp.Or(audience, s.standard.audiences[0])
	})
	return &p.learned
}

// findEnvironments puts private clouds first: they may use the authority of a
// public one.
func (s *surroundings) findEnvironments(p *Provider) error {
	for i, c := range azurename.Clouds() {
		e := &environment{name: c.Name, authorities: c.Authorities, management: c.ManagementHost,
			registry: c.RegistrySuffix, public: i == 0, audiences: [1]string{c.FederatedAudience}}
		s.environments = append(s.environments, e.prepare(c.ManagementAudience, azurename.RegistryAudience))
	}
	var private []*environment
	for i, c := range p.PrivateClouds {
		e, err := s.private(c)
		if err != nil {
			return self.Misconfigured("correct its description", "private cloud %d: %v", i, err).About(optionClouds)
		}
		private = append(private, e)
	}
	authority := cmp.Or(p.AuthorityHost, os.Getenv("AZURE_AUTHORITY_HOST"))
	var file *environment
	if path := os.Getenv("AZURE_ENVIRONMENT_FILEPATH"); path != "" {
		var err error
		if file, err = s.environmentFile(path, cmp.Or(authority, publicAuthority)); err != nil {
			return self.Misconfigured("correct the file that the environment variable AZURE_ENVIRONMENT_FILEPATH names",
				"%v", err)
		}
		private = append(private, file)
	}
	s.environments = append(private, s.environments...)
	if authority == "" && file != nil {
		s.standard = file
		return nil
	}
	return s.findStandard(cmp.Or(authority, publicAuthority))
}

const publicAuthority = "https://login.microsoftonline.com"

func (s *surroundings) findStandard(authority string) error {
	host, err := parseAuthority("authority", authority)
	if err != nil {
		return self.Misconfigured("set it to "+publicAuthority+", or to that of another cloud", "%v", err)
	}
	if s.standard = s.at(host); s.standard == nil {
		// The controller's own setting needs no permission.
		s.standard = &environment{name: "the cloud of " + host, authorities: []string{host},
			audiences: [1]string{"https://" + host}}
		s.environments = append(s.environments, s.standard.prepare("", azurename.RegistryAudience))
	}
	return nil
}

// at returns the cloud of an authority, nil if none is known.
func (s *surroundings) at(authority string) *environment {
	for _, e := range s.environments {
		for _, host := range e.authorities {
			if host == authority {
				return e
			}
		}
	}
	return nil
}

// private returns a private cloud. If its authority is Microsoft's, it differs
// from Microsoft's cloud in the named fields only.
func (s *surroundings) private(c Cloud) (*environment, error) {
	host, err := parseAuthority("authority", c.AuthorityHost)
	if err != nil {
		return nil, err
	}
	e := &environment{audiences: [1]string{"https://" + host}}
	if microsoft := s.at(host); microsoft != nil {
		*e = *microsoft
		e.microsoft = microsoft
	}
	e.name, e.authorities = "the cloud of "+host, []string{host}
	e.audiences[0] = cmp.Or(c.Audience, e.audiences[0])
	audience := c.ResourceManagerAudience
	if c.ResourceManagerEndpoint != "" {
		if e.management, err = parseAuthority("address of Azure Resource Manager", c.ResourceManagerEndpoint); err != nil {
			return nil, err
		}
		audience = cmp.Or(audience, "https://"+e.management)
	}
	if audience != "" || e.microsoft == nil {
		e.prepare(audience, cmp.Or(audience, azurename.RegistryAudience))
	}
	if suffix := strings.ToLower(strings.TrimPrefix(c.RegistrySuffix, ".")); suffix != "" {
		if !azurename.ValidTenant(suffix) {
			return nil, fmt.Errorf("the domain of container registries %.300q is none", c.RegistrySuffix)
		}
		e.registry = suffix
		if e.microsoft != nil && audience == "" {
			e.registryScope = nil // its registries could use Microsoft's tokens at Microsoft's
		}
	}
	return e, nil
}

// environmentFile reads the description of a private cloud. The given authority
// is the default.
func (s *surroundings) environmentFile(path, authority string) (*environment, error) {
	content, err := input.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var document struct {
		ActiveDirectoryEndpoint    string `json:"activeDirectoryEndpoint"`
		ResourceManagerEndpoint    string `json:"resourceManagerEndpoint"`
		TokenAudience              string `json:"tokenAudience"`
		ContainerRegistryDNSSuffix string `json:"containerRegistryDNSSuffix"`
	}
	if err := json.Unmarshal(content, &document); err != nil {
		return nil, fmt.Errorf("the file %q is not a JSON object that describes a cloud", path)
	}
	e,
		err := s.private(Cloud{AuthorityHost: cmp.Or(document.ActiveDirectoryEndpoint, authority),
		ResourceManagerEndpoint: document.ResourceManagerEndpoint,
		ResourceManagerAudience: document.TokenAudience, RegistrySuffix: document.ContainerRegistryDNSSuffix})
	if err != nil {
		return nil, fmt.Errorf("the file %q: %w", path, err)
	}
	return e, nil
}

// environmentOf returns the cloud of a call and the host of its authority.
func (p *Provider) environmentOf(opts *provider.Options) (*environment, string, error) {
	s := p.learn()
	if s.err != nil {
		return nil, "", s.err
	}
	authority, _ := opts.Value(authorityKey{}).(string)
	named := cmp.Or(authority, opts.STSEndpoint)
	if named == "" {
		return s.standard, s.standard.authorities[0], nil
	}
	host, ok := strings.CutPrefix(named, "https://")
	e := s.at(host)
	if !ok || e == nil { // hits of the cache parse nothing
		var err error
		if host, err = parseAuthority("authority", named); err != nil {
			return nil, "", self.Misconfigured("use one such as https://login.microsoftonline.us", "%v", err)
		}
		if e = s.at(host); e == nil {
			return nil, "", self.Misconfigured("use that of one of Microsoft's clouds, or describe the private cloud",
				"the authority %.300q is refused: its host is unknown", named).About(optionClouds)
		}
	}
	if named != opts.STSEndpoint && opts.STSEndpoint != "" {
		if other, err := parseAuthority("authority", opts.STSEndpoint); err != nil || other != host {
			return nil, "", self.Misconfigured("leave one out",
				"the authority host and the STS endpoint name different authorities").
				About("azure.WithAuthorityHost", "auth.WithSTSEndpoint")
		}
	}
	return e, host, nil
}

// parseAuthority returns the host of an address, with the port if it is not
// 443. That host receives the tokens of ServiceAccounts.
func parseAuthority(option, authority string) (string, error) {
	u, err := address.Parse(option, authority, 0)
	if err != nil {
		return "", err
	}
	host, _ := address.Canonical(u)
	return strings.TrimSuffix(host, ":443"), nil
}
