package azure

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

// managementVersion is an API version of Microsoft.ContainerService that all clouds have.
const managementVersion = "2023-10-01"

// managedCluster is what we need of the resource.
type managedCluster struct {
	Properties struct {
		ProvisioningState string           `json:"provisioningState"`
		FQDN              string           `json:"fqdn"`
		PrivateFQDN       string           `json:"privateFQDN"`
		AADProfile        *json.RawMessage `json:"aadProfile"`
	} `json:"properties"`
}

// findCluster asks the Azure Resource Manager of the call's own cloud.
func (p *Provider) findCluster(ctx context.Context, token *Token, opts *auth.Options) (*foundCluster, error) {
	e, _, err := p.environmentOf(opts)
	if err != nil {
		return nil, err
	}
	id, err := parseCluster(opts.ClusterResource)
	if err != nil {
		return nil, err
	}
	client, err := self.HTTPClient(&p.transports, opts)
	if err != nil {
		return nil, err
	}
	arm := &manager{client: client, base: "https://" + e.management + id.Path(), secret: token.accessToken.Reveal(),
		id: opts.ClusterResource}
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
	// A private cluster with a public name has the one in its kubeconfig and the other here.
	for _, name := range []string{cluster.Properties.FQDN, cluster.Properties.PrivateFQDN} {
		if address, err := auth.ParseClusterAddress("https://" + name); err == nil {
			found.addresses = append(found.addresses, address)
		}
	}
	return found, nil
}

// check refuses clusters that cannot take an access token of Microsoft Entra ID.
func (c *managedCluster) check(id string) error {
	properties := &c.Properties
	switch {
	case strings.EqualFold(properties.ProvisioningState, "Creating"):
		return notReady(id, "it is being created")
	case properties.AADProfile == nil || string(*properties.AADProfile) == "null":
		return &auth.Error{Provider: ProviderName, Operation: opCluster, Reason: auth.ErrMisconfigured,
			Message: fmt.Sprintf("the cluster %q has no Microsoft Entra integration: properties.aadProfile is not set", id),
			Remedy:  "enable it with: az aks update --enable-aad"}
	case properties.FQDN == "" && properties.PrivateFQDN == "":
		return notReady(id, "it has no address yet")
	}
	return nil
}

// addKubeconfig takes over the clusters of a kubeconfig, and nothing else of it: it may name commands to run.
func (c *foundCluster) addKubeconfig(content []byte) error {
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server string `json:"server"`
				CA     []byte `json:"certificate-authority-data"`
			} `json:"cluster"`
		} `json:"clusters"`
	}
	unusable := func(what string) error {
		return self.Unavailable(opCluster, "", "the kubeconfig of the cluster %q cannot be used: %s", c.id, what)
	}
	if yaml.Unmarshal(content, &config) != nil {
		return unusable("it is malformed")
	}
	for _, entry := range config.Clusters {
		if entry.Cluster.Server == "" {
			continue
		}
		address, err := auth.ParseClusterAddress(entry.Cluster.Server)
		if err != nil {
			return unusable(fmt.Sprintf("the address %.300q is none", entry.Cluster.Server))
		}
		if len(entry.Cluster.CA) > 0 && !isPEM(entry.Cluster.CA) {
			return unusable("its certificate authority is not PEM")
		}
		if len(c.addresses) == 0 {
			c.ca = entry.Cluster.CA
		}
		c.addresses = append(c.addresses, address)
	}
	return nil
}

// isPEM reports whether data are certificates in PEM, and nothing else.
func isPEM(data []byte) bool {
	for n := 0; ; n++ {
		block, rest := pem.Decode(data)
		if block == nil {
			return n > 0
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil || block.Type != "CERTIFICATE" {
			return false
		}
		data = rest
	}
}

// manager is a client of Azure Resource Manager for one resource.
type manager struct {
	client           *http.Client
	base, secret, id string
}

func (m *manager) call(ctx context.Context, method, action string, into any) error {
	answer, err := transport.Send(ctx, m.client, func() (*http.Request, error) {
		r, err := http.NewRequest(method, m.base+action+"?api-version="+managementVersion, nil) //nolint:noctx // Send has it
		if err != nil {
			return nil, err
		}
		r.Header.Set("Authorization", "Bearer "+m.secret)
		r.Header.Set("Accept", "application/json")
		return r, nil
	}, nil)
	if err != nil {
		return unanswered(err, opCluster, m.secret)
	}
	if answer.Status != http.StatusOK {
		return m.failed(answer)
	}
	if json.Unmarshal(answer.Body, into) != nil {
		return self.Unavailable(opCluster, "",
			"the answer of Azure Resource Manager is not the JSON object that was expected")
	}
	return nil
}

// failed explains why Azure Resource Manager refused.
func (m *manager) failed(answer transport.Answer) error {
	e := answered(answer, opCluster, "x-ms-request-id", m.secret)
	e.Message = "the answer is not one of Azure Resource Manager"
	var body struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	parsed := json.Unmarshal(answer.Body, &body) == nil && body.Error.Code != ""
	if parsed {
		e.Code = redact.Text(body.Error.Code, m.secret)
		e.Message = fmt.Sprintf("cluster %q: %s", m.id, redact.Text(body.Error.Message, m.secret))
	}
	switch {
	case answer.Status == http.StatusTooManyRequests:
		e.Reason = auth.ErrThrottled
	case !parsed || passingStatus(answer.Status) || answer.Status == http.StatusConflict:
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
