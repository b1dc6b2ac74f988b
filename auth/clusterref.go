package auth

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/cache"
)

// Keys of a ConfigMap that names a remote cluster (RFC-0010, "API Changes").
const (
	// ClusterProviderKey is the provider's name. Required.
	ClusterProviderKey = "provider"
	// ClusterResourceKey is the cluster's full name in the provider's API. Not for the generic provider.
	ClusterResourceKey = "cluster"
	// ClusterAddressKey is the HTTPS address of the cluster's API server. Required for the generic provider.
	ClusterAddressKey = "address"
	// ClusterServiceAccountKey is the name of a ServiceAccount in the ConfigMap's namespace.
	ClusterServiceAccountKey = "serviceAccountName"
	// ClusterAudiencesKey are the audiences of the ServiceAccount's token, as a YAML list or one on each line.
	ClusterAudiencesKey = "audiences"
	// ClusterCAKey are the PEM certificates of the cluster's certificate authority.
	ClusterCAKey = "ca.crt"
)

// genericProvider is the name of the provider of auth/token, which has no API to ask about a cluster.
const genericProvider = "generic"

// ClusterReference is what a ConfigMap says of a remote cluster.
type ClusterReference struct {
	Provider           string
	Cluster            string
	Address            string
	ServiceAccountName string
	Audiences          []string
	CAData             string
}

// ParseClusterReference reads the data of a ConfigMap. Keys that it does not know are ignored, and an empty value counts as an
// absent key. It refuses what is missing, malformed or contradictory, with ErrMisconfigured. Whether cluster, address and CA may
// be set together depends on the provider: GetRESTConfig decides.
func ParseClusterReference(data map[string]string) (*ClusterReference, error) {
	r := &ClusterReference{
		Provider:           strings.TrimSpace(data[ClusterProviderKey]),
		Cluster:            strings.TrimSpace(data[ClusterResourceKey]),
		Address:            strings.TrimSpace(data[ClusterAddressKey]),
		ServiceAccountName: strings.TrimSpace(data[ClusterServiceAccountKey]),
		CAData:             strings.TrimSpace(data[ClusterCAKey]),
	}
	var err error
	if r.Audiences, err = parseAudiences(data[ClusterAudiencesKey]); err != nil {
		return nil, err
	}
	return r, r.validate()
}

func (r *ClusterReference) validate() error {
	switch {
	case r.Provider == "":
		return misconfigured("set it to the name of a provider, such as aws", "the key %q is missing", ClusterProviderKey)
	case r.Provider == genericProvider && r.Address == "":
		return misconfigured("set it to the https address of the cluster's API server", "the key %q is missing", ClusterAddressKey)
	case r.Provider == genericProvider && r.Cluster != "":
		return misconfigured("leave it out", "the provider %q knows no clusters by name, but the key %q is set", genericProvider, ClusterResourceKey)
	case r.Provider != genericProvider && r.Cluster == "" && (r.Address == "" || r.CAData == ""):
		return misconfigured(fmt.Sprintf("set %q, or both %q and %q", ClusterResourceKey, ClusterAddressKey, ClusterCAKey),
			"what is set does not say which cluster it is")
	case r.ServiceAccountName != "" && !validServiceAccountName(r.ServiceAccountName):
		return misconfigured("give the name of a ServiceAccount of the same namespace", "the key %q is not a valid name: %.300q",
			ClusterServiceAccountKey, r.ServiceAccountName)
	}
	if r.Address != "" {
		if _, err := ParseClusterAddress(r.Address); err != nil {
			return err
		}
	}
	return checkCAData(r.CAData)
}

const (
	maxAudiences     = 32
	maxAudiencesText = 16 << 10
)

// hasAlias finds YAML's anchors and aliases, with which a small text can stand for a huge one. Where one may begin is not
// easily said. After these characters, which audiences have, none does.
func hasAlias(text string) bool {
	const inside = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._=&*%~+"
	for i := range len(text) {
		if (text[i] == '&' || text[i] == '*') && (i == 0 || strings.IndexByte(inside, text[i-1]) < 0) {
			return true
		}
	}
	return false
}

// parseAudiences accepts a YAML list of strings, and lines that each hold an audience.
func parseAudiences(text string) ([]string, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, nil
	}
	var audiences []string
	if len(text) > maxAudiencesText || hasAlias(text) {
		return nil, misconfigured("write a short YAML list of strings, without anchors and aliases", "the key %q is not a YAML list of strings", ClusterAudiencesKey)
	}
	if strings.HasPrefix(text, "-") || strings.HasPrefix(text, "[") || strings.HasPrefix(text, "#") {
		if err := yaml.UnmarshalStrict([]byte(text), &audiences); err != nil {
			return nil, misconfigured("write a YAML list of strings", "the key %q is not a YAML list of strings", ClusterAudiencesKey)
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
			return nil, misconfigured("write a YAML list of strings", "the key %q holds %.100q, which is not an audience", ClusterAudiencesKey, a)
		}
	}
	if len(audiences) == 0 || len(audiences) > maxAudiences {
		return nil, misconfigured("write a YAML list of strings", "the key %q has %d entries", ClusterAudiencesKey, len(audiences))
	}
	return audiences, nil
}

// Options returns the options of GetRESTConfig that r stands for. The ServiceAccount is looked for in namespace with c.
func (r *ClusterReference) Options(namespace string, c KubernetesClient) []Option {
	opts := []Option{WithClient(c)}
	if r.ServiceAccountName != "" {
		opts = append(opts, WithServiceAccount(client.ObjectKey{Namespace: namespace, Name: r.ServiceAccountName}, c))
	}
	if r.Cluster != "" {
		opts = append(opts, WithClusterResource(r.Cluster))
	}
	if r.Address != "" {
		opts = append(opts, WithClusterAddress(r.Address))
	}
	if r.CAData != "" {
		opts = append(opts, WithCAData(r.CAData))
	}
	if len(r.Audiences) > 0 {
		opts = append(opts, WithAudiences(r.Audiences...))
	}
	return opts
}

// GetClusterConfigFromConfigMap is GetClusterConfig for the cluster that a ConfigMap names, with the keys above. The
// ConfigMap has to lie in the namespace of the owner unless Policy.AllowConfigMap allows it. The ServiceAccount that it names
// lies in the ConfigMap's namespace. Without one the controller's own identity is used, and Policy.AllowCluster judges the
// cluster if an owner is known. Audiences have to be listed in Policy.Audiences. c reads the ConfigMap (verb get on configmaps)
// and is used for the ServiceAccount. Options that the ConfigMap sets win over opts. The config does not follow later changes of
// the ConfigMap: make it anew for each reconciliation.
//
//	apiVersion: v1
//	kind: ConfigMap
//	metadata: {namespace: tenant-a, name: production}
//	data:
//	  provider: aws
//	  cluster: arn:aws:eks:eu-central-1:123456789012:cluster/production
//	  serviceAccountName: deployer
func GetClusterConfigFromConfigMap(ctx context.Context, providers *ProviderSet, configMap client.ObjectKey, c KubernetesClient,
	opts ...Option) (*rest.Config, error) {
	if isNil(c) {
		return nil, misconfigured("pass a client", "the Kubernetes client is nil")
	}
	var o Options
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	owner := *o.owner()
	if err := o.Policy.checkConfigMap(&owner, configMap); err != nil {
		return nil, inConfigMap(err, configMap)
	}
	if owner == (cache.InvolvedObject{}) {
		// The ConfigMap's author chooses the cluster and the ServiceAccount, so the Policy has to judge the ConfigMap.
		owner = cache.InvolvedObject{Kind: "ConfigMap", Namespace: configMap.Namespace, Name: configMap.Name}
	}
	var cm corev1.ConfigMap
	if err := c.Get(ctx, configMap, &cm); err != nil {
		return nil, configMapError(err, configMap)
	}
	r, err := ParseClusterReference(cm.Data)
	if err != nil {
		return nil, inConfigMap(err, configMap)
	}
	provider, err := providers.Get(r.Provider)
	if err != nil {
		return nil, inConfigMap(err, configMap)
	}
	return GetClusterConfig(ctx, provider, slices.Concat(opts, []Option{WithOwner(owner)}, r.Options(configMap.Namespace, c))...)
}

func configMapError(err error, key client.ObjectKey) error {
	e := kubernetesError(err, fmt.Sprintf("read ConfigMap %q", key.String()))
	switch {
	case apierrors.IsForbidden(err):
		e.Remedy = fmt.Sprintf("grant the controller the verb get on configmaps in namespace %q", key.Namespace)
	case apierrors.IsNotFound(err):
		e.Remedy = "create it, or correct the name"
	}
	return e
}

func inConfigMap(err error, key client.ObjectKey) error {
	return describe(err, "", fmt.Sprintf("use ConfigMap %q", key.String()), client.ObjectKey{})
}
