package clusterprofile

import (
	"encoding/json"
	"fmt"
	"net/url"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
)

// ExtensionName is the extension of a cluster whose content exec plugins
// receive as spec.cluster.config.
const ExtensionName = "client.authentication.k8s.io/exec"

// ClusterName returns the cluster's name in the provider's API, from the key
// clusterName of the extension's content. It is empty if the key is missing.
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

// CheckTLS refuses settings of a cluster that weaken the check of its server's
// certificate. If the author may choose the server's name, any certificate of
// the cluster's CA suffices, such as a kubelet's. where names the object to
// correct.
func CheckTLS(server, serverName string, insecure bool, where string) error {
	if !insecure && serverName == "" {
		return nil
	}
	host := "" // the rest of an address may hold a password
	if u, err := url.Parse(server); err == nil {
		host = u.Host
	}
	setting := fmt.Sprintf("tls-server-name is %.100q", serverName)
	if insecure {
		setting = "insecure-skip-tls-verify is true"
	}
	return self.Misconfigured("remove it from the "+where+", and set certificate-authority-data",
		"%s, so no certificate proves the cluster at %.300q", setting, host)
}

// IsBound reports whether only the API server at the address in opts accepts
// the provider's credential, for example because the address is the audience.
// It does not depend on the CA.
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
