package azure

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/address"
	"github.com/workloadid/workloadid/internal/azurename"
)

// Cloud describes a private cloud, such as one of Azure Stack.
type Cloud struct {
	// AuthorityHost is the address of its token service, https://<host>[:<port>]. It gets to see the tokens of
	// ServiceAccounts. Required.
	AuthorityHost string
	// ResourceManagerEndpoint is the address of its Azure Resource Manager. Without it there is no default scope, and no
	// access to clusters by name.
	ResourceManagerEndpoint string
	// ResourceManagerAudience is the resource that tokens for Azure Resource Manager are for. Empty: its address.
	ResourceManagerAudience string
	// RegistrySuffix is the domain of its container registries, such as "azurecr.region.example". Empty: there are none.
	RegistrySuffix string
}

// environment is a cloud in the form in which calls need it.
type environment struct {
	name        string
	authorities []string // hosts, with the port if it is not 443; the first is the one to use
	management  string   // the host of Azure Resource Manager, "" if it is not known
	registry    string   // the domain of container registries, "" if there are none
	public      bool     // it has Azure DevOps

	// Prepared, because calls that are answered from the cache need them too.
	defaultScopes []string
	registryScope []auth.Option
	clusterScopes [][]auth.Option // that of AKS, that of Azure Resource Manager
}

func newEnvironment(name, management, audience, registryAudience, registry string, authorities ...string) *environment {
	e := &environment{name: name, authorities: authorities, management: management, registry: registry,
		registryScope: scope(registryAudience), clusterScopes: [][]auth.Option{scope(azurename.ClusterAudience), scope(audience)}}
	if audience != "" {
		e.defaultScopes = []string{audience + "/.default"}
	}
	return e
}

func scope(audience string) []auth.Option {
	if audience == "" {
		return nil
	}
	return slices.Clip([]auth.Option{auth.WithScopes(audience + "/.default")})
}

// surroundings are what a Provider learns once from its fields and from the environment.
type surroundings struct {
	tenant       string // AZURE_TENANT_ID
	environments []*environment
	standard     *environment // that of calls that name no authority
	audiences    [1]string
	gitScope     []auth.Option
	err          error
}

func (p *Provider) learn() *surroundings {
	p.once.Do(func() {
		s := &p.learned
		s.tenant = os.Getenv("AZURE_TENANT_ID")
		s.audiences[0] = p.Audience
		if p.Audience == "" {
			s.audiences[0] = DefaultAudience
		}
		s.gitScope = scope(azurename.DevOpsAudience)
		s.err = s.findEnvironments(p)
	})
	return &p.learned
}

// findEnvironments puts private clouds first: they may use the authority of a public one.
func (s *surroundings) findEnvironments(p *Provider) error {
	for i := range p.PrivateClouds {
		e, err := p.PrivateClouds[i].environment()
		if err != nil {
			return self.Misconfigured("correct Provider.PrivateClouds", "private cloud %d: %v", i, err)
		}
		s.environments = append(s.environments, e)
	}
	authority := p.AuthorityHost
	if authority == "" {
		authority = os.Getenv("AZURE_AUTHORITY_HOST")
	}
	file, err := environmentFile(os.Getenv("AZURE_ENVIRONMENT_FILEPATH"), authority)
	if err != nil {
		return self.Misconfigured("correct the file that the environment variable AZURE_ENVIRONMENT_FILEPATH names", "%v", err)
	}
	if file != nil {
		s.environments = append(s.environments, file)
	}
	for i, c := range azurename.Clouds() {
		e := newEnvironment(c.Name, c.ManagementHost, c.ManagementAudience, azurename.RegistryAudience, c.RegistrySuffix,
			c.Authorities...)
		e.public = i == 0
		s.environments = append(s.environments, e)
	}
	return s.findStandard(authority, file)
}

func (s *surroundings) findStandard(authority string, file *environment) error {
	if authority == "" {
		s.standard = s.at(azurename.Clouds()[0].Authorities[0])
		if file != nil {
			s.standard = file
		}
		return nil
	}
	host, err := parseAuthority("authority", authority)
	if err != nil {
		return self.Misconfigured("set it to https://login.microsoftonline.com, or to that of another cloud", "%v", err)
	}
	if s.standard = s.at(host); s.standard == nil {
		// The controller's own setting needs no permission.
		s.standard = newEnvironment("the cloud of "+host, "", "", azurename.RegistryAudience, "", host)
		s.environments = append(s.environments, s.standard)
	}
	return nil
}

// at returns the cloud that an authority belongs to, nil if none is known.
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

func (c Cloud) environment() (*environment, error) {
	host, err := parseAuthority("authority", c.AuthorityHost)
	if err != nil {
		return nil, err
	}
	var management, audience string
	if c.ResourceManagerEndpoint != "" {
		if management, err = parseAuthority("address of Azure Resource Manager", c.ResourceManagerEndpoint); err != nil {
			return nil, err
		}
		audience = "https://" + management
	}
	if c.ResourceManagerAudience != "" {
		audience = strings.TrimSuffix(c.ResourceManagerAudience, "/")
	}
	suffix := strings.ToLower(strings.TrimPrefix(c.RegistrySuffix, "."))
	if suffix != "" && !azurename.ValidTenant(suffix) {
		return nil, fmt.Errorf("the domain of container registries %.300q is none", c.RegistrySuffix)
	}
	registryAudience := audience
	if registryAudience == "" {
		registryAudience = azurename.RegistryAudience
	}
	return newEnvironment("the cloud of "+host, management, audience, registryAudience, suffix, host), nil
}

const maxEnvironmentFile = 1 << 20

// environmentFile reads the description of a private cloud. Its authority, if the file names none, is the given one.
func environmentFile(path, authority string) (*environment, error) {
	if path == "" {
		return nil, nil
	}
	file, err := os.Open(path) //nolint:gosec // the controller's own environment names it
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	content, err := io.ReadAll(io.LimitReader(file, maxEnvironmentFile))
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
	c := Cloud{AuthorityHost: document.ActiveDirectoryEndpoint, ResourceManagerEndpoint: document.ResourceManagerEndpoint,
		ResourceManagerAudience: document.TokenAudience, RegistrySuffix: document.ContainerRegistryDNSSuffix}
	if c.AuthorityHost == "" {
		c.AuthorityHost = authority
	}
	e, err := c.environment()
	if err != nil {
		return nil, fmt.Errorf("the file %q: %w", path, err)
	}
	return e, nil
}

// environmentOf returns the cloud of a call and the host of its authority.
func (p *Provider) environmentOf(opts *auth.Options) (*environment, string, error) {
	s := p.learn()
	if s.err != nil {
		return nil, "", s.err
	}
	authority, _ := opts.ProviderOption(authorityKey{}).(string)
	if authority == "" {
		authority = opts.STSEndpoint
	} else if opts.STSEndpoint != "" && !sameAuthority(opts.STSEndpoint, authority) {
		return nil, "", self.Misconfigured("leave one out", "WithAuthorityHost and WithSTSEndpoint name different authorities")
	}
	if authority == "" {
		return s.standard, s.standard.authorities[0], nil
	}
	if e := s.at(strings.TrimPrefix(authority, "https://")); e != nil && strings.HasPrefix(authority, "https://") {
		return e, authority[len("https://"):], nil // hits of the cache parse nothing
	}
	host, err := parseAuthority("authority", authority)
	if err != nil {
		return nil, "", self.Misconfigured("use one such as https://login.microsoftonline.us", "%v", err)
	}
	if e := s.at(host); e != nil {
		return e, host, nil
	}
	return nil, "", self.Misconfigured("use that of one of Microsoft's clouds, or describe the cloud in Provider.PrivateClouds",
		"the authority %.300q is refused: its host is not known", authority)
}

// sameAuthority compares what is meant: a slash at the end, upper case or the port 443 make no difference.
func sameAuthority(a, b string) bool {
	if a == b {
		return true
	}
	hostA, errA := parseAuthority("authority", a)
	hostB, errB := parseAuthority("authority", b)
	return errA == nil && errB == nil && hostA == hostB
}

// parseAuthority returns the host of an address, with the port if it is not 443. That address gets to see the tokens of
// ServiceAccounts.
func parseAuthority(option, authority string) (string, error) {
	u, err := address.Parse(option, authority, 0)
	if err != nil {
		return "", err
	}
	host, _ := address.Canonical(u)
	return strings.TrimSuffix(host, ":443"), nil
}
