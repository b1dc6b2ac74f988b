// Package inventory reads clusters of SIG Multicluster's inventory (KEP-5339). Their author chooses address, CA and name, and is trusted
// with no credential.
package inventory

import (
	"encoding/json"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/providers"
)

const self = providers.Name("")

// ExtensionName is the extension of a cluster whose content exec plugins get as spec.cluster.config.
const ExtensionName = "client.authentication.k8s.io/exec"

// ClusterName returns the cluster's name in the provider's API, the key clusterName of the extension's content. It is empty if there is
// none.
func ClusterName(config []byte) (string, error) {
	var c struct {
		ClusterName string `json:"clusterName"`
	}
	if len(config) == 0 {
		return "", nil
	}
	if json.Unmarshal(config, &c) != nil {
		return "", self.Misconfigured("write an object whose clusterName is the cluster's name in the provider's API",
			"the extension %q of the cluster is not an object with a text clusterName", ExtensionName)
	}
	return c.ClusterName, nil
}

// IsBound reports whether only the API server at the address in opts accepts the provider's credential, because the address is the
// audience for example. It does not depend on the CA.
func IsBound(p auth.Provider, opts ...auth.Option) bool {
	clusters, ok := p.(provider.RESTConfigProvider)
	if !ok {
		return false
	}
	var o auth.Options
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	o.ClusterResource, o.CAData = "", ""
	access, err := clusters.GetAccessTokenOptionsForCluster(&o.Options)
	return err == nil && access.OneCluster
}
