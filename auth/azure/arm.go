package azure

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/exactjson"
	"github.com/workloadid/workloadid/internal/transport"
)

// managementVersion is an API version of Microsoft.ContainerService that all
// clouds have.
const managementVersion = "2023-10-01"

// managedCluster holds the fields of the resource that access depends on.
type managedCluster struct {
	Properties struct {
		ProvisioningState string           `json:"provisioningState"`
		FQDN              string           `json:"fqdn"`
		PrivateFQDN       string           `json:"privateFQDN"`
		AADProfile        *json.RawMessage `json:"aadProfile"`
	} `json:"properties"`
}

// findCluster asks the Azure Resource Manager of the call's own cloud.
func (p *Provider) findCluster(ctx context.Context, token *Token, opts *provider.Options) (*foundCluster, error) {
	e, _, err := p.environmentOf(opts)
	if err != nil {
		return nil, err
	}
	id, err := parseCluster(opts.ClusterResource)
	if err != nil {
		return nil, err
	}
	arm := &manager{client: p.clients.For(opts), base: "https://" + e.management + id.Path(),
		secret: token.accessToken.Reveal(),
		id:     opts.ClusterResource}
	return arm.find(ctx)
}

// find asks about the cluster and for its kubeconfigs.
func (m *manager) find(ctx context.Context) (*foundCluster, error) {
	var cluster managedCluster
	if err := m.call(ctx, http.MethodGet, "", &cluster); err != nil {
		return nil, err
	}
	if err := cluster.check(m.id); err != nil {
		return nil, err
	}
	var answer struct {
		Kubeconfigs []struct {
			Value []byte `json:"value"`
		} `json:"kubeconfigs"`
	}
	if err := m.call(ctx, http.MethodPost, "/listClusterUserCredential", &answer); err != nil {
		return nil, err
	}
	found := &foundCluster{id: m.id}
	for _, k := range answer.Kubeconfigs {
		if err := found.addKubeconfig(k.Value); err != nil {
			return nil, err
		}
	}
	if len(found.addresses) == 0 {
		return nil, notReady(m.id, "it has no kubeconfig yet")
	}
	// The kubeconfig of a private cluster with a public name holds one of its
	// two names.
	for _, name := range []string{cluster.Properties.FQDN, cluster.Properties.PrivateFQDN} {
		if address, err := provider.ParseClusterAddress("https://" + name); err == nil {
			found.addresses = append(found.addresses, address)
		}
	}
	return found, nil
}

// check refuses clusters that cannot take an access token of Microsoft Entra
// ID.
func (c *managedCluster) check(id string) error {
	properties := &c.Properties
	switch {
	case strings.EqualFold(properties.ProvisioningState, "Creating"):
		return notReady(id, "it is being created")
	case properties.AADProfile == nil || string(*properties.AADProfile) == "null":
		return self.Misconfigured("enable it with: az aks update --enable-aad",
			"the cluster %q has no Microsoft Entra integration: properties.aadProfile is not set", id)
	case properties.FQDN == "" && properties.PrivateFQDN == "":
		return notReady(id, "it has no address yet")
	}
	return nil
}

// addKubeconfig reads the clusters of a kubeconfig and nothing else, because a
// kubeconfig may name commands to run.
func (c *foundCluster) addKubeconfig(content []byte) error {
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server string `json:"server"`
				CA     []byte `json:"certificate-authority-data"`
			} `json:"cluster"`
		} `json:"clusters"`
	}
	unusable := func(format string, args ...any) error {
		return self.Unavailable(opCluster, "", "the kubeconfig of the cluster %q cannot be used: "+format,
			append([]any{c.id}, args...)...)
	}
	if yaml.Unmarshal(content, &config) != nil {
		return unusable("it is malformed")
	}
	for _, entry := range config.Clusters {
		if entry.Cluster.Server == "" {
			continue
		}
		address, err := provider.ParseClusterAddress(entry.Cluster.Server)
		if err != nil {
			return unusable("the address %.300q is malformed", entry.Cluster.Server)
		}
		if len(entry.Cluster.CA) > 0 && !x509.NewCertPool().AppendCertsFromPEM(entry.Cluster.CA) {
			return unusable("its certificate authority is not PEM")
		}
		if len(c.addresses) == 0 {
			c.ca = entry.Cluster.CA
		}
		c.addresses = append(c.addresses, address)
	}
	return nil
}

// manager is a client of Azure Resource Manager for one resource.
type manager struct {
	client           *http.Client
	base, secret, id string
}

func (m *manager) call(ctx context.Context, method, action string, into any) error {
	answer, err := transport.JSONRequest{Method: method, Bearer: m.secret,
		URL: m.base + action + "?api-version=" + managementVersion}.Send(ctx, m.client)
	switch {
	case err != nil:
		return self.Unanswered(opCluster, err, m.secret)
	case answer.Status != http.StatusOK:
		return m.failed(answer)
	case exactjson.Unmarshal(answer.Body, into) != nil:
		return self.Unusable(opCluster, "Azure Resource Manager", "it is not the JSON object that was expected")
	}
	return nil
}

// failed explains why Azure Resource Manager refused.
func (m *manager) failed(answer transport.Answer) error {
	e := refused(answer, opCluster, "x-ms-request-id", m.secret)
	e.Message = "the answer is not one of Azure Resource Manager"
	var body struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	parsed := exactjson.Unmarshal(answer.Body, &body) == nil && body.Error.Code != ""
	if parsed {
		e.Code = provider.Redact(body.Error.Code, m.secret)
		e.Message = fmt.Sprintf("cluster %q: %s", m.id, provider.Redact(body.Error.Message, m.secret))
	}
	switch {
	case answer.Status == http.StatusTooManyRequests:
		e.Reason = auth.ErrThrottled
	case !parsed || isTemporary(answer.Status) || answer.Status == http.StatusConflict:
	case e.Code == "InvalidAuthenticationTokenTenant":
		e.Reason = auth.ErrMisconfigured
		e.Remedy = fmt.Sprintf("use an identity of the subscription's tenant, see the annotation %q", TenantIDAnnotation)
	case answer.Status == http.StatusNotFound:
		e.Reason, e.Remedy = auth.ErrMisconfigured, "correct the resource ID of the cluster"
	case answer.Status == http.StatusBadRequest:
		e.Reason = auth.ErrMisconfigured
	default:
		e.Reason = auth.ErrDenied
		e.Remedy = "assign the identity the role Azure Kubernetes Service Cluster User Role on the cluster"
	}
	return e
}
