package auth

import (
	"context"
	"crypto/sha256"
	"time"

	"github.com/workloadid/workloadid/cache"
)

// addAccessTokenKey writes everything that shapes an access token into the key. If the caller brought a source of
// tokens, its token is part of that: claims prove nothing before somebody has verified them, so only whoever holds the
// same token may share what it was exchanged for.
func (c *call) addAccessTokenKey(ctx context.Context) (jwt string, err error) {
	if c.opts.SubjectToken != nil {
		if jwt, err = c.callersToken(ctx); err != nil {
			return "", err
		}
	}
	c.addInputs(&c.key, jwt)
	return jwt, nil
}

// group names the keys whose exchanges fail together: access tokens that differ in nothing but variations
// (KeyBuilder.AddVariation), such as the bound object. A key without variations is alone and needs no group.
//
// All other inputs of the key are in it, since a tenant can get each of them wrong for one object and right for another: the
// ServiceAccount with its UID, role, audiences, scopes, region, STS endpoint, proxy, lifetimes, a session policy. A token
// that the caller holds is in it too, because its claims are not verified: with a forged one, a caller could hold back the
// ServiceAccount that it names. The owner's namespace is in it, so that tenants that use the same ServiceAccount, or the
// controller's own identity, hold back only themselves.
//
// Credentials that are derived from access tokens have no group: a registry that refuses says nothing of other registries.
// If their access token fails, they back off with it.
func (c *call) group(jwt string) cache.Key {
	derived := c.kind == registryKind || c.kind == clusterKind || c.kind == gitKind
	if derived || !c.key.varied {
		return cache.Key{}
	}
	k := KeyBuilder{group: true}
	k.Add("owner", c.opts.owner().Namespace)
	c.addInputs(&k, jwt)
	return k.sum()
}

func (c *call) addInputs(k *KeyBuilder, jwt string) {
	b := appendInput(k.buf, inputProvider, c.provider.GetName())
	b = appendInput(b, inputClusterID, c.opts.ClusterID)
	if sa := &c.account; c.named {
		b = appendInput(b, inputIdentity, c.identity)
		b = appendInput(b, inputName, sa.Name)
		b = appendInput(b, inputNamespace, sa.Namespace)
		b = appendInput(b, inputUID, string(sa.UID))
		b = appendInputs(b, inputAudiences, c.audiences)
	} else {
		b = appendInputs(b, inputOwnAudiences, c.opts.Audiences)
	}
	b = appendInputs(b, inputScopes, c.opts.Scopes)
	b = appendInput(b, inputSTSRegion, c.opts.STSRegion)
	k.buf = appendInput(b, inputSTSEndpoint, c.opts.STSEndpoint)
	c.addLifetimes(k)
	if !c.named && c.opts.AllowShellOut {
		k.Add("allowShellOut", "true")
	}
	if jwt != "" {
		sum := sha256.Sum256([]byte(jwt))
		k.Add("subjectTokenSHA256", string(sum[:]))
	}
	if c.opts.ProxyURL != nil {
		k.Add("proxyURL", c.opts.ProxyURL.String())
	}
	if p, ok := c.provider.(CacheKeyContributor); ok {
		p.AddToCacheKey(k, c.serviceAccount(), &c.opts)
	}
}

func (c *call) addLifetimes(k *KeyBuilder) {
	if c.lifetime != 0 {
		k.Add("serviceAccountTokenLifetime", c.lifetime.String())
	} else if c.opts.TokenLifetime != 0 {
		k.Add("tokenLifetime", c.opts.TokenLifetime.String())
	}
	if b := c.opts.BoundObject; b != nil {
		k.AddVariation("boundObject", []string{b.APIVersion, b.Kind, b.Name, string(b.UID)})
	}
}

func (c *call) callersToken(ctx context.Context) (string, error) {
	jwt, expiry, err := c.opts.SubjectToken.Token(ctx, c.audiences)
	switch {
	case err != nil:
		return "", err
	case jwt == "":
		return "", misconfigured("have the source return a token or an error", "the source of subject tokens returned none")
	case expiry.IsZero():
		claims, err := parseClaims(jwt)
		if err != nil {
			return "", err
		}
		expiry = claims.Expiry.Time
	}
	return jwt, checkExpiry(expiry, time.Now())
}
