package auth

import (
	"context"
	"net/url"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cache"
)

// Policy is what a controller allows its tenants. It is checked on every call, before any token is requested or sent, and
// on cache hits too. Only what depends on annotations has to wait until the ServiceAccount has been read. The zero value is the strictest: a ServiceAccount may only be used by objects of its
// own namespace, and only with the audiences of the provider.
//
// A Policy is shared by all calls that it is passed to and must not be changed after that. Its functions run on the
// hot path and concurrently.
type Policy struct {
	// AllowCrossNamespace allows owner to use a ServiceAccount of another namespace. Nil never does.
	AllowCrossNamespace func(owner cache.InvolvedObject, serviceAccount client.ObjectKey) bool

	// Authorize has the last word on every credential: an error refuses it, with ErrDenied and the error's text.
	// Nil allows whatever the rest of the Policy does.
	Authorize func(ctx context.Context, request AuthorizeRequest) error

	// RequireServiceAccount refuses objects that name no ServiceAccount, with ErrDenied, unless the Settings have a default
	// for them: nobody gets the controller's own identity.
	RequireServiceAccount bool

	// AllowClusterAddress allows the controller's own identity to be sent to a cluster whose address or certificate authority
	// only the object vouches for: whoever answers there could act as the controller. address is "" if the object names the
	// cluster and gives a certificate authority of its own. Nil never does. ServiceAccounts of the tenants, and tokens of the
	// generic provider whose audience is the address and that go where the system's roots prove the host, need no permission.
	AllowClusterAddress func(owner cache.InvolvedObject, address string) bool

	// AllowProxy allows the proxy of WithProxyURL to be used on behalf of owner, where objects choose it: the controller connects
	// to any address that a proxy's URL names, also inside its network. Nil allows every proxy.
	AllowProxy func(owner cache.InvolvedObject, proxy url.URL) bool

	// Audiences are the audiences that callers and annotations may choose instead of the provider's own. Without
	// this list a tenant could pick the audience, and whoever receives the token could pass it on to whatever
	// trusts that audience.
	Audiences []string

	// AllowAnyAudience lifts the restriction of Audiences. Only for controllers whose users may all use each
	// other's identities.
	AllowAnyAudience bool

	// APIServerAudiences are the audiences of the cluster's own API server, in addition to the usual ones and, in a pod, to
	// those of the pod's own token. A token with one of them could be used against the API server by whoever receives it, so
	// none is ever sent out.
	APIServerAudiences []string

	ownTokenFile string // for tests
}

// AuthorizeRequest is one use of an identity by an object.
type AuthorizeRequest struct {
	// Provider is the provider's name.
	Provider string
	// Owner is the object on whose behalf the credential is needed.
	Owner cache.InvolvedObject
	// ServiceAccount is the identity it names; empty for the controller's own.
	ServiceAccount client.ObjectKey
	// Identity is what the ServiceAccount's annotations ask for, such as a role ARN.
	Identity string
	// Audiences are those of the Kubernetes token. The hook must not change or keep the slice.
	Audiences []string
}

// isAPIServerAudience knows the audiences that API servers have by default, whatever their issuer is. One that was
// configured otherwise is caught when the token comes back, because the API server's default audience is the issuer.
func (p *Policy) isAPIServerAudience(audience string) bool {
	switch audience {
	case "https://kubernetes.default.svc", "https://kubernetes.default.svc.cluster.local",
		"kubernetes.default.svc", "https://kubernetes.default", "kubernetes", "api",
		"k3s", "rke2":
		return true
	}
	return slices.Contains(p.APIServerAudiences, audience)
}

// checkAudience is the rule for audiences that somebody other than the provider chose.
func (p *Policy) checkAudience(audience string) error {
	if audience == "" {
		return misconfigured("give the name of the service that accepts the token", "an audience is empty")
	}
	if !p.AllowAnyAudience && !slices.Contains(p.Audiences, audience) {
		return denied("add it to Policy.Audiences in the controller if its tenants may choose it",
			"the audience %.300q is not one of those the controller allows", audience)
	}
	return nil
}

// checkAudiences looks at the audiences that a token will really be requested for.
func (p *Policy) checkAudiences(audiences []string) error {
	if len(audiences) == 0 {
		// Without an audience the API server issues a token for itself.
		return misconfigured("pass WithAudiences", "there is no audience for the ServiceAccount token")
	}
	for _, audience := range audiences {
		if audience == "" {
			return misconfigured("give the name of the service that accepts the token", "an audience is empty")
		}
		if p.isAPIServerAudience(audience) {
			return denied("use an audience of the service that receives the token",
				"the audience %.300q is the API server's own: its receiver could act as the ServiceAccount", audience)
		}
	}
	return nil
}

func (p *Policy) checkProxy(owner *cache.InvolvedObject, proxy *url.URL) error {
	if p.AllowProxy == nil || p.AllowProxy(*owner, *proxy) {
		return nil
	}
	return denied("use another proxy or none, or set Policy.AllowProxy", "the proxy %.300q is not allowed", proxy.Host)
}

// checkClusterAddress is the rule for a cluster that only the caller vouches for.
func (p *Policy) checkClusterAddress(owner *cache.InvolvedObject, address string) error {
	if p.AllowClusterAddress != nil && p.AllowClusterAddress(*owner, address) {
		return nil
	}
	return denied("name a ServiceAccount, or the cluster without its certificate authority, or set Policy.AllowClusterAddress",
		"the controller's own identity is not sent where only the object says who answers (address %.300q)", address)
}

// checkNamespace fails closed: without an owner there is nothing that the ServiceAccount could belong to.
func (p *Policy) checkNamespace(owner *cache.InvolvedObject, serviceAccount client.ObjectKey) error {
	if owner.Namespace == serviceAccount.Namespace && owner.Namespace != "" {
		return nil
	}
	if p.AllowCrossNamespace != nil && p.AllowCrossNamespace(*owner, serviceAccount) {
		return nil
	}
	if owner.Namespace == "" {
		return misconfigured("pass WithOwner, or WithCache with the involved object, or set Policy.AllowCrossNamespace",
			"the object that uses the ServiceAccount is not known, or has no namespace")
	}
	return denied("name a ServiceAccount of the object's own namespace",
		"it lies in namespace %q, but %s %q that names it lies in %q", serviceAccount.Namespace,
		firstNonEmpty(owner.Kind, "the object"), owner.Name, owner.Namespace)
}
