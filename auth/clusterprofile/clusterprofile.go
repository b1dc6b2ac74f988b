package clusterprofile

import (
	"context"
	"net/http"
	"net/url"
	"slices"

	"k8s.io/client-go/rest"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cache"
)

const self = provider.Name("")

// GetConfig returns a [rest.Config] for the cluster of a ClusterProfile. The
// config renews itself, as [auth.GetClusterConfig]'s does. Options, policy and
// errors are the same. The owner of the call is required, because the author of
// the ClusterProfile chooses the cluster. The first of these rules that applies
// decides where the credential goes:
//
//   - A credential that only the API server at this address accepts goes there,
//     with the CA of the ClusterProfile. The generic provider's default
//     audience makes one.
//   - If the extension client.authentication.k8s.io/exec holds a clusterName,
//     the provider's API has to confirm the address, and its CA counts. The
//     name is an ARN, a resource ID or the full name of a GKE cluster. It can
//     also be the bare name of an EKS cluster in the role's account and the
//     region of [auth.WithSTSRegion].
//   - Otherwise Policy.AllowCluster has to allow address and CA, for
//     ServiceAccounts too.
//
// As in auth, a ServiceAccount has to lie in the owner's namespace, and the
// controller's own identity needs Policy.AllowCluster. A proxy-url needs a
// Policy.AllowProxy that allows it: with a CA of the same author, the proxy
// could read the token. GetConfig ignores the extensions for arguments and
// variables of exec plugins.
func GetConfig(ctx context.Context, p auth.Provider, cluster *clientcmdv1.Cluster,
	opts ...auth.Option) (*rest.Config, error) {
	if err := checkForm(cluster); err != nil {
		return nil, err
	}
	o := auth.Options{Policy: &auth.Policy{}}
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	owner := o.InvolvedObject
	if o.Owner.Name != "" || o.Owner.Namespace != "" {
		owner = o.Owner
	}
	if owner == (cache.InvolvedObject{}) {
		return nil, self.Misconfigured("name the ClusterProfile, or the object that uses it",
			"the owner of the call is unknown").
			About("auth.WithOwner", "auth.WithCache")
	}
	proxy, err := proxyOf(cluster, owner, o.Policy)
	if err != nil {
		return nil, err
	}
	target, err := targetOf(p, cluster, owner, opts)
	if err != nil {
		return nil, err
	}
	config, err := auth.GetClusterConfig(ctx, p, slices.Concat(opts, target)...)
	if err == nil && proxy != nil {
		config.Proxy = http.ProxyURL(proxy)
	}
	return config, err
}

// checkForm refuses settings that weaken the check of the server's certificate,
// or that read the controller's files.
func checkForm(c *clientcmdv1.Cluster) error {
	switch {
	case c == nil:
		return self.Misconfigured("pass the Cluster of an access provider", "the cluster is nil")
	case c.CertificateAuthority != "":
		return self.Misconfigured("use certificate-authority-data", "certificate-authority names a file")
	}
	return CheckTLS(c.Server, c.TLSServerName, c.InsecureSkipTLSVerify, "ClusterProfile")
}

func proxyOf(c *clientcmdv1.Cluster, owner cache.InvolvedObject, policy *auth.Policy) (*url.URL, error) {
	if c.ProxyURL == "" {
		return nil, nil
	}
	u, err := url.Parse(c.ProxyURL)
	switch {
	case err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme):
		return nil, self.Misconfigured("use http://host:port, https:// or socks5://",
			"the proxy-url of the cluster is malformed")
	case policy == nil || policy.AllowProxy == nil || !policy.AllowProxy(owner, *u):
		return nil, self.Denied("remove the proxy-url from the ClusterProfile, or have the policy allow it",
			"the proxy %.300q of the cluster is not allowed", u.Host).About("auth.Policy.AllowProxy")
	}
	return u, nil
}

// targetOf returns the options that name the cluster, by the rules of
// GetConfig.
func targetOf(p auth.Provider, c *clientcmdv1.Cluster, owner cache.InvolvedObject,
	opts []auth.Option) ([]auth.Option, error) {
	address, err := provider.ParseClusterAddress(c.Server)
	if err != nil {
		return nil, err
	}
	target := []auth.Option{auth.WithClusterAddress(c.Server), auth.WithClusterResource(""),
		auth.WithCAData(string(c.CertificateAuthorityData))}
	if IsBound(p, slices.Concat(opts, target)...) {
		return target, nil
	}
	name, err := clusterName(c)
	switch {
	case err != nil:
		return nil, err
	case name != "":
		return append(target, auth.WithClusterResource(name), auth.WithCAData("")), nil
	}
	return append(target,
		onlyIfAllowed(auth.ClusterRequest{Owner: owner, Address: address,
			CAFromObject: len(c.CertificateAuthorityData) > 0})), nil
}

func clusterName(c *clientcmdv1.Cluster) (string, error) {
	for _, extension := range c.Extensions {
		if extension.Name == ExtensionName {
			content, err := extension.Extension.MarshalJSON()
			if err != nil {
				return "", err
			}
			return ClusterName(content)
		}
	}
	return "", nil
}

// onlyIfAllowed lets Policy.AllowCluster decide every request, also for
// ServiceAccounts.
func onlyIfAllowed(r auth.ClusterRequest) auth.Option {
	return func(o *auth.Options) {
		policy := *o.Policy
		authorize := policy.Authorize
		policy.Authorize = func(ctx context.Context, request auth.AuthorizeRequest) error {
			switch {
			case policy.AllowCluster == nil || !policy.AllowCluster(r):
				return self.Denied("set clusterName in the extension "+ExtensionName+", or have the policy allow the cluster",
					"other clusters than that at %.300q accept the credential too", r.Address).About("auth.Policy.AllowCluster")
			case authorize == nil:
				return nil
			}
			return authorize(ctx, request)
		}
		auth.WithPolicy(policy)(o)
	}
}
