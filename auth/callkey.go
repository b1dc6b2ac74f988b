package auth

import (
	"context"
	"crypto/sha256"
	"time"
)

// addAccessTokenKey writes everything that shapes an access token into the key. If the caller brought a source of
// tokens, its token is part of that: claims prove nothing before somebody has verified them, so only whoever holds the
// same token may share what it was exchanged for.
func (c *call) addAccessTokenKey(ctx context.Context) (jwt string, err error) {
	k := &c.key
	b := appendInput(k.buf, inputProvider, c.provider.GetName())
	b = appendInput(b, inputClusterID, c.opts.ClusterID)
	if sa := c.serviceAccount; sa != nil {
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
	c.addLifetimeKey()
	if c.serviceAccount == nil && c.opts.AllowShellOut {
		k.Add("allowShellOut", "true")
	}
	if c.opts.SubjectToken != nil {
		if jwt, err = c.callersToken(ctx); err != nil {
			return "", err
		}
		sum := sha256.Sum256([]byte(jwt))
		k.Add("subjectTokenSHA256", string(sum[:]))
	}
	if c.opts.ProxyURL != nil {
		k.Add("proxyURL", c.opts.ProxyURL.String())
	}
	if p, ok := c.provider.(CacheKeyContributor); ok {
		p.AddToCacheKey(k, c.serviceAccount, &c.opts)
	}
	return jwt, nil
}

func (c *call) addLifetimeKey() {
	if c.lifetime != 0 {
		c.key.Add("serviceAccountTokenLifetime", c.lifetime.String())
	} else if c.opts.TokenLifetime != 0 {
		c.key.Add("tokenLifetime", c.opts.TokenLifetime.String())
	}
	if b := c.opts.BoundObject; b != nil {
		c.key.AddList("boundObject", []string{b.APIVersion, b.Kind, b.Name, string(b.UID)})
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
