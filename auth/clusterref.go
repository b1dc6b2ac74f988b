package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cache"
)

// Keys of a ConfigMap that names a remote cluster (RFC-0010, "API Changes").
const (
	refProvider       = "provider"
	refCluster        = "cluster"
	refAddress        = "address"
	refServiceAccount = "serviceAccountName"
	refAudiences      = "audiences"
	refCA             = "ca.crt"
)

// genericProvider is the name of the provider of auth/token, which has no API
// to ask about a cluster.
const genericProvider = "generic"

// clusterReference is the content of such a ConfigMap.
type clusterReference struct {
	provider, cluster, address, serviceAccountName string

	audiences []string
	caData    string
}

// parseClusterReference ignores unknown keys, and an empty value counts as an
// absent key. Whether cluster, address and CA may be set together depends on
// the provider: GetRESTConfig decides.
func parseClusterReference(data map[string]string) (*clusterReference, error) {
	r := &clusterReference{
		provider:           strings.TrimSpace(data[refProvider]),
		cluster:            strings.TrimSpace(data[refCluster]),
		address:            strings.TrimSpace(data[refAddress]),
		serviceAccountName: strings.TrimSpace(data[refServiceAccount]),
		caData:             strings.TrimSpace(data[refCA]),
	}
	var err error
	if r.audiences, err = parseAudiences(data[refAudiences]); err != nil {
		return nil, err
	}
	return r, r.validate()
}

func (r *clusterReference) validate() error {
	switch {
	case r.provider == "":
		return misconfigured("set it to the name of a provider, such as aws", "the key %q is missing", refProvider)
	case r.provider == genericProvider && r.address == "":
		return misconfigured("set it to the https address of the cluster's API server", "the key %q is missing", refAddress)
	case r.provider == genericProvider && r.cluster != "":
		return misconfigured("leave it out", "the provider %q knows no clusters by name, but the key %q is set",
			genericProvider, refCluster)
	case r.provider != genericProvider && r.cluster == "" && r.address == "": // the provider decides about an address
		return misconfigured(fmt.Sprintf("set %q, or both %q and %q", refCluster, refAddress, refCA),
			"the keys do not identify a cluster")
	case r.serviceAccountName != "" && !validServiceAccountName(r.serviceAccountName):
		return misconfigured("give the name of a ServiceAccount of the same namespace",
			"the key %q is not a valid name: %.300q", refServiceAccount, r.serviceAccountName)
	}
	if r.address != "" {
		if _, err := provider.ParseClusterAddress(r.address); err != nil {
			return ofKey(err, refAddress)
		}
	}
	return ofKey(checkCAData(r.caData), refCA)
}

// ofKey names the key whose value an error is about.
func ofKey(err error, key string) error {
	var known *Error
	if !errors.As(err, &known) {
		return err
	}
	named := *known
	named.Message = fmt.Sprintf("the key %q: %s", key, known.Message)
	return &named
}

const (
	maxAudiences     = 32
	maxAudiencesText = 16 << 10
)

// hasAlias finds YAML's anchors and aliases, with which a small text can expand
// to a huge one. None begins after the characters of an audience.
func hasAlias(text string) bool {
	const inside = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._=&*%~+"
	for i := range len(text) {
		if (text[i] == '&' || text[i] == '*') && (i == 0 || strings.IndexByte(inside, text[i-1]) < 0) {
			return true
		}
	}
	return false
}

// parseAudiences accepts a YAML list of strings, and lines that each hold an
// audience.
func parseAudiences(text string) ([]string, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, nil
	}
	var audiences []string
	if len(text) > maxAudiencesText || hasAlias(text) {
		return nil, misconfigured("write a short YAML list of strings, without anchors and aliases",
			"the key %q is not a YAML list of strings: %.100q", refAudiences, text)
	}
	if strings.HasPrefix(text, "-") || strings.HasPrefix(text, "[") || strings.HasPrefix(text, "#") {
		if err := yaml.UnmarshalStrict([]byte(text), &audiences); err != nil {
			return nil, misconfigured("write a YAML list of strings", "the key %q is not a YAML list of strings: %.100q",
				refAudiences, text)
		}
	} else {
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" {
				audiences = append(audiences, line)
			}
		}
	}
	for _, a := range audiences {
		if a == "" || strings.ContainsAny(a, " \t\r\n") || strings.HasSuffix(a, ":") {
			return nil, misconfigured("write a YAML list of strings", "the key %q holds %.100q, which is not an audience",
				refAudiences, a)
		}
	}
	if len(audiences) == 0 || len(audiences) > maxAudiences {
		return nil, misconfigured("write a YAML list of strings", "the key %q has %d entries", refAudiences, len(audiences))
	}
	return audiences, nil
}

// option sets what the ConfigMap sets.
func (r *clusterReference) option(namespace string, c KubernetesClient) Option {
	return func(o *Options) {
		o.Client = c
		if r.serviceAccountName != "" {
			o.ServiceAccount = &client.ObjectKey{Namespace: namespace, Name: r.serviceAccountName}
		}
		if len(r.audiences) > 0 {
			o.Audiences = r.audiences
		}
		o.ClusterResource = cmp.Or(r.cluster, o.ClusterResource)
		o.ClusterAddress = cmp.Or(r.address, o.ClusterAddress)
		o.CAData = cmp.Or(r.caData, o.CAData)
	}
}

// GetClusterConfigFromConfigMap is [GetClusterConfig] for the cluster that a
// ConfigMap names. The ConfigMap has to lie in the namespace of the owner
// unless [Policy.AllowConfigMap] allows it. The ServiceAccount that it names
// lies in the ConfigMap's namespace. Without one the controller's own identity
// is used, and [Policy.AllowCluster] decides about the cluster if an owner is
// known. c reads the ConfigMap (verb get on configmaps) and the ServiceAccount.
// Values of the ConfigMap win over opts. The config does not follow later
// changes of the ConfigMap: build it again for each reconciliation.
//
// Unknown keys are ignored. A missing, malformed or contradictory value fails
// with [ErrMisconfigured].
//
//	apiVersion: v1
//	kind: ConfigMap
//	metadata: {namespace: tenant-a, name: production}
//	data:
//	  provider: aws # required
//	  cluster: arn:aws:eks:eu-central-1:123456789012:cluster/production # the name in the provider's API, not for generic
//	  address: https://ABCD.gr7.eu-central-1.eks.amazonaws.com # of the API server, required for generic
//	  ca.crt: PEM certificates
//	  serviceAccountName: deployer
//	  audiences: a YAML list or one on each line, from Policy.Audiences
func GetClusterConfigFromConfigMap(ctx context.Context, providers *ProviderSet, configMap client.ObjectKey,
	c KubernetesClient, opts ...Option) (*rest.Config, error) {
	if isNil(c) {
		return nil, misconfigured("pass a client", "the Kubernetes client is nil")
	}
	var o Options
	o.apply(opts)
	owner := *o.owner()
	if err := o.Policy.checkConfigMap(&owner, configMap); err != nil {
		return nil, inConfigMap(err, configMap)
	}
	if owner == (cache.InvolvedObject{}) {
		// The ConfigMap's author chooses the cluster and the ServiceAccount, so
		// the Policy has to allow the ConfigMap.
		owner = cache.InvolvedObject{Kind: "ConfigMap", Namespace: configMap.Namespace, Name: configMap.Name}
	}
	var cm corev1.ConfigMap
	if err := c.Get(ctx, configMap, &cm); err != nil {
		return nil, requestError(err, fmt.Sprintf("read ConfigMap %q", configMap.String()), "get on configmaps",
			configMap.Namespace)
	}
	r, err := parseClusterReference(cm.Data)
	if err != nil {
		return nil, inConfigMap(err, configMap)
	}
	provider, err := providers.Get(r.provider)
	if err != nil {
		return nil, inConfigMap(ofKey(err, refProvider), configMap)
	}
	config, err := GetClusterConfig(ctx, provider,
		slices.Concat(opts, []Option{WithOwner(owner), r.option(configMap.Namespace, c)})...)
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %q: %w", configMap.String(), err) // its values shape the call
	}
	return config, nil
}

func inConfigMap(err error, key client.ObjectKey) error {
	return describe(err, "", fmt.Sprintf("use ConfigMap %q", key.String()), client.ObjectKey{})
}
