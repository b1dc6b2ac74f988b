package auth

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cache"
)

// Policy restricts the tenants of a controller. It is checked on every call,
// before any token is requested or sent, and on cache hits too. Rules that
// depend on annotations are checked after the ServiceAccount has been read. The
// zero value is the strictest: only objects of its own namespace may use a
// ServiceAccount, and only with the audiences of the provider.
//
// All calls share a Policy, so it must not be changed once it is in use. Its
// functions run on the hot path and concurrently.
type Policy struct {
	// AllowCrossNamespace allows owner to use a ServiceAccount of another
	// namespace. Nil never does.
	AllowCrossNamespace func(owner cache.InvolvedObject, serviceAccount client.ObjectKey) bool

	// Authorize has the last word on every credential: an error refuses it,
	// with ErrDenied and the error's text. Nil allows whatever the rest of the
	// Policy does.
	Authorize func(ctx context.Context, request AuthorizeRequest) error

	// RequireServiceAccount refuses objects that name no ServiceAccount, with
	// ErrDenied, unless the Settings have a default for them: no object gets
	// the controller's own identity.
	RequireServiceAccount bool

	// AllowCluster allows the controller's own identity to be used for a
	// cluster on behalf of an object. The cluster receives a credential of the
	// controller, so a tenant could otherwise collect it with a cluster of its
	// own. Nil never allows it. Three cases need no permission: a
	// ServiceAccount, a call without an owner, where the controller itself
	// chose the cluster, and a token that only this one cluster accepts
	// (provider.ClusterAccess.OneCluster).
	AllowCluster func(request ClusterRequest) bool

	// AllowConfigMap allows owner to use a ConfigMap that lies outside its
	// namespace. It is also asked for an owner without a namespace and for a
	// call without an owner; the ConfigMap itself is the owner of the rest of
	// that call. Nil refuses all of these. AllowCluster and AllowCrossNamespace
	// still check the cluster and the ServiceAccount that the ConfigMap names.
	AllowConfigMap func(owner cache.InvolvedObject, configMap client.ObjectKey) bool

	// AllowProxy allows the proxy of WithProxyURL to be used on behalf of
	// owner, where objects choose it: the controller connects to any address
	// that a proxy's URL names, also inside its network. Nil allows every
	// proxy.
	AllowProxy func(owner cache.InvolvedObject, proxy url.URL) bool

	// Audiences are the audiences that callers and annotations may choose
	// instead of the provider's own. A tenant that picks any audience could
	// relay the token to a service that trusts that audience.
	Audiences []string

	// AllowAnyAudience lifts the restriction of Audiences, for controllers
	// whose users may all use each other's identities.
	AllowAnyAudience bool

	// APIServerAudiences are further audiences of the cluster's own API server.
	// The usual ones are known, and in a pod also the audiences of the pod's
	// own token. Tokens for them are never sent out, because the receiver could
	// use them against the API server.
	APIServerAudiences []string

	ownTokenFile string // for tests
}

// strictest is the Policy of calls without one. It never changes.
var strictest = &Policy{}

// audiencePolicy is the part of a Policy that providers call.
type audiencePolicy Policy

// CheckAudience implements provider.AudiencePolicy.
func (p *audiencePolicy) CheckAudience(audience string) error {
	policy := (*Policy)(p)
	if err := policy.checkAudience(audience); err != nil {
		return err
	}
	return policy.checkAudiences([]string{audience}) // not one of the API server
}

// CheckSubjectToken implements provider.AudiencePolicy.
func (p *audiencePolicy) CheckSubjectToken(token string, audiences []string) error {
	policy := (*Policy)(p)
	if err := policy.checkAudiences(audiences); err != nil {
		return err
	}
	return checkSubjectToken(token, time.Now(), audiences, nil, policy)
}

// AuthorizeRequest is one use of an identity by an object.
type AuthorizeRequest struct {
	// Provider is the provider's name.
	Provider string
	// Owner is the object on whose behalf the credential is needed.
	Owner cache.InvolvedObject
	// ClusterID names the cluster of the ServiceAccount (WithClusterID). It is
	// empty without the option.
	ClusterID string
	// ServiceAccount is the identity it names; empty for the controller's own.
	ServiceAccount client.ObjectKey
	// Annotations come from WithAnnotations and win over the ServiceAccount's.
	// The hook must not change or keep the map.
	Annotations map[string]string
	// Subject is the claim sub of the token that the SubjectIssuer of the call
	// issues. It is empty without one.
	Subject string
	// SubjectIdentity names the identity that the annotations request of that
	// issuer, if Subject does not: SubjectClaims.Identity.
	SubjectIdentity string
	// Identity names the identity that the annotations request, such as a role
	// ARN. The caller's annotations win over the ServiceAccount's.
	Identity string
	// Chain lists the further identities that are assumed from Identity, in
	// order, such as role ARNs. The credential belongs to the last one. The
	// hook must not change or keep the slice.
	Chain []string
	// Audiences are the audiences of the Kubernetes token. The hook must not
	// change or keep the slice.
	Audiences []string
}

// ClusterRequest is one use of the controller's own identity for a cluster, on
// behalf of an object.
type ClusterRequest struct {
	// Owner is the object on whose behalf the credential is needed.
	Owner cache.InvolvedObject
	// Resource is the cluster's full name in the provider's API. It is empty if
	// only the address names the cluster.
	Resource string
	// Address is the canonical address of the cluster's API server
	// (ParseClusterAddress). It is empty if the provider's API supplies it.
	Address string
	// CAFromObject reports that the CA certificates come with the call. They
	// replace the CA that the provider's API reports.
	CAFromObject bool
}

// isAPIServerAudience recognizes the audiences that API servers have by
// default, whatever their issuer is. The check of the returned token catches
// others, because the API server's default audience is the issuer.
func (p *Policy) isAPIServerAudience(audience string) bool {
	switch audience {
	case "https://kubernetes.default.svc", "https://kubernetes.default.svc.cluster.local",
		"kubernetes.default.svc", "https://kubernetes.default", "kubernetes", "api",
		"k3s", "rke2":
		return true
	}
	return slices.Contains(p.APIServerAudiences, audience)
}

// checkAudience checks an audience that a caller or an annotation chose.
func (p *Policy) checkAudience(audience string) error {
	if audience == "" {
		return misconfigured("give the name of the service that accepts the token", "an audience is empty")
	}
	if !p.AllowAnyAudience && !slices.Contains(p.Audiences, audience) {
		e := denied("add it to the policy if tenants may choose it", "the policy does not list the audience %.300q",
			audience).
			About("auth.Policy.Audiences")
		e.Cause = provider.CauseAudienceNotAllowed
		return e
	}
	return nil
}

// checkAudiences checks all audiences of the future token, also the provider's.
func (p *Policy) checkAudiences(audiences []string) error {
	if len(audiences) == 0 {
		// Without an audience the API server issues a token for itself.
		return misconfigured("set the audience",
			"there is no audience for the ServiceAccount token").About("auth.WithAudiences")
	}
	for _, audience := range audiences {
		if audience == "" {
			return misconfigured("give the name of the service that accepts the token", "an audience is empty")
		}
		if p.isAPIServerAudience(audience) {
			e := denied("use an audience of the service that receives the token",
				"the audience %.300q is the API server's own: its receiver could act as the ServiceAccount", audience)
			e.Cause = provider.CauseAPIServerAudience
			return e
		}
	}
	return nil
}

func (p *Policy) checkProxy(owner *cache.InvolvedObject, proxy *url.URL) error {
	if p.AllowProxy == nil || p.AllowProxy(*owner, *proxy) {
		return nil
	}
	return denied("use another proxy or none, or have the policy allow it", "the proxy %.300q is not allowed",
		proxy.Host).About("auth.Policy.AllowProxy")
}

// checkCluster refuses clusters for the controller's own identity unless
// AllowCluster allows them.
func (p *Policy) checkCluster(r *ClusterRequest) error {
	if p.AllowCluster != nil && p.AllowCluster(*r) {
		return nil
	}
	return denied("name a ServiceAccount, or have the policy allow the cluster",
		"%s %q may not use the controller's own identity for %s", cmp.Or(r.Owner.Kind, "the object"), r.Owner.Name,
		r.cluster()).
		About("auth.Policy.AllowCluster")
}

// cluster describes the cluster in the object's words.
func (r *ClusterRequest) cluster() string {
	text := "the cluster"
	if r.Resource != "" {
		text += fmt.Sprintf(" %.300q", r.Resource)
	}
	if r.Address != "" {
		text += fmt.Sprintf(" at %.300q", r.Address)
	}
	if r.CAFromObject {
		text += " with CA data of the object"
	}
	return text
}

// checkNamespace refuses ServiceAccounts outside the owner's namespace unless
// AllowCrossNamespace allows them.
func (p *Policy) checkNamespace(owner *cache.InvolvedObject, serviceAccount client.ObjectKey) error {
	return checkOwned(owner, serviceAccount, "ServiceAccount", "auth.Policy.AllowCrossNamespace", p.AllowCrossNamespace)
}

// checkConfigMap refuses ConfigMaps outside the owner's namespace unless
// AllowConfigMap allows them.
func (p *Policy) checkConfigMap(owner *cache.InvolvedObject, configMap client.ObjectKey) error {
	return checkOwned(owner, configMap, "ConfigMap", "auth.Policy.AllowConfigMap", p.AllowConfigMap)
}

// checkOwned fails closed: without a namespaced owner, no namespace is the
// right one.
func checkOwned(owner *cache.InvolvedObject, key client.ObjectKey, kind, option string,
	allow func(cache.InvolvedObject, client.ObjectKey) bool) error {
	if owner.Namespace == key.Namespace && owner.Namespace != "" {
		return nil
	}
	if allow != nil && allow(*owner, key) {
		return nil
	}
	if owner.Namespace == "" {
		return misconfigured("name the object, or have the policy allow the "+kind,
			"the object that uses the %s is unknown, or has no namespace", kind).About("auth.WithOwner", "auth.WithCache",
			option)
	}
	return denied("name a "+kind+" of the object's own namespace, or have the policy allow it",
		"it lies in namespace %q, but %s %q that names it lies in %q", key.Namespace,
		cmp.Or(owner.Kind, "the object"), owner.Name, owner.Namespace).About(option)
}
