package gcp

import (
	"context"
	"net/url"
	"strings"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/gcpname"
)

// Kinds of a membership's path. The Connect Gateway serves GKE clusters under a
// kind of their own.
const (
	memberships    = "memberships"
	gkeMemberships = "gkeMemberships"
)

const gatewayHost = "connectgateway"

// gatewayAddress returns the address of a membership at the Connect Gateway.
// Regions have hosts of their own.
func (p *Provider) gatewayAddress(number, location, kind, membership string) string {
	host := gatewayHost
	if location != "global" {
		host = location + "-" + gatewayHost
	}
	return "https://" + host + "." + p.universe() + ":443/v1/projects/" + number + "/locations/" + location + "/" + kind +
		"/" + membership
}

// isConnectGateway reports whether a canonical address is a membership's at the
// Connect Gateway. Other paths of its hosts are refused.
func (p *Provider) isConnectGateway(address string) (bool, error) {
	if !strings.Contains(address, gatewayHost) {
		return false, nil // without parsing it: this runs on every hit of the cache
	}
	u, err := url.Parse(address)
	if err != nil {
		return false, nil //nolint:nilerr // no address of the gateway, whatever it is
	}
	region, ok := strings.CutSuffix(u.Hostname(), gatewayHost+"."+p.universe())
	if !ok || region != "" && !strings.HasSuffix(region, "-") {
		return false, nil
	}
	parts := strings.Split(u.Path, "/")
	if len(parts) != len(strings.Split("/v1/projects/p/locations/l/memberships/m", "/")) ||
		parts[6] != memberships && parts[6] != gkeMemberships || !gcpname.ValidProjectNumber(parts[3]) ||
		!gcpname.ValidLocation(parts[5]) || !gcpname.ValidMembership(parts[7]) ||
		address != p.gatewayAddress(parts[3], parts[5], parts[6], parts[7]) {
		return false, self.Misconfigured("use https://[<location>-]connectgateway."+p.universe()+
			"/v1/projects/<number>/locations/<location>/gkeMemberships/<membership>",
			"the address %.300q of the Connect Gateway names no membership of a fleet", address)
	}
	return true, nil
}

// newGatewayConfig returns access to a membership of a fleet.
func (p *Provider) newGatewayConfig(ctx context.Context, token *Token, opts *provider.Options,
) (*auth.RESTConfig, error) {
	parts := strings.Split(opts.ClusterResource, "/") // checkClusterName accepted it
	project, location, membership := parts[1], parts[3], parts[5]
	kind, err := p.membershipKind(ctx, token, opts)
	if err != nil {
		return nil, err
	}
	number, err := p.projectNumber(ctx, token, opts, project)
	if err != nil {
		return nil, err
	}
	address := p.gatewayAddress(number, location, kind, membership)
	if given := opts.ClusterAddress; given != "" && given != address {
		return nil, self.Misconfigured("use "+address+", or leave the address out",
			"cluster %q: %.300q is not its address", opts.ClusterResource, given)
	}
	return provider.NewRESTConfig(address, token.AccessToken(), []byte(opts.CAData), token.ExpiresAt()), nil
}

// membershipKind calls projects.locations.memberships.get of the GKE Hub API,
// v1.
func (p *Provider) membershipKind(ctx context.Context, token *Token, opts *provider.Options) (string, error) {
	var answer struct {
		Endpoint struct {
			GKE *struct{} `json:"gkeCluster"`
		} `json:"endpoint"`
	}
	err := p.get(ctx, token, opts, "gkehub", "v1/"+opts.ClusterResource+"?fields=endpoint%2FgkeCluster",
		remedies{forbidden: "grant roles/gkehub.viewer in the fleet's project to the identity",
			notFound: "correct the name, whose location is the membership's region or global, or register the cluster"},
		&answer)
	switch {
	case err != nil:
		return "", err
	case answer.Endpoint.GKE != nil:
		return gkeMemberships, nil
	}
	return memberships, nil
}

// projectNumber calls projects.get of the Resource Manager API, v3. The gateway
// knows projects by their numbers alone.
func (p *Provider) projectNumber(ctx context.Context, token *Token, opts *provider.Options,
	project string) (string, error) {
	if gcpname.ValidProjectNumber(project) {
		return project, nil
	}
	var answer struct {
		Name string `json:"name"`
	}
	if err := p.get(ctx, token, opts, "cloudresourcemanager", "v3/projects/"+project+"?fields=name",
		remedies{forbidden: "grant roles/gkehub.viewer in the fleet's project to the identity, or name the project by its number",
			notFound: "correct the project, or name it by its number"}, &answer); err != nil {
		return "", err
	}
	number := strings.TrimPrefix(answer.Name, "projects/")
	if !gcpname.ValidProjectNumber(number) {
		return "", self.Unusable(opCluster, service, "the number of the project %q is malformed: %.100q", project,
			answer.Name)
	}
	return number, nil
}
