package auth

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cache"
)

// keyBuilder implements provider.KeyBuilder. Each input carries its kind and its length, so no two different inputs give the same
// bytes. An empty input is left out.
type keyBuilder struct {
	buf    []byte
	varied bool // AddVariation was called
	group  bool // leave variations out
}

// input is the kind of the next bytes of a key. It takes one byte, because writing and hashing these is a good part of a hit.
type input byte

const (
	inputNamed     input = iota // its name follows, then its value
	inputNamedList              // its name follows, then its values
	inputProvider
	inputClusterID
	inputIdentity
	inputName
	inputNamespace
	inputUID
	inputAudiences
	inputOwnAudiences
	inputScopes
	inputSTSRegion
	inputSTSEndpoint
	inputRegistry
	inputGit
	inputCluster
	inputClusterAddress
	inputClusterCA
	inputClusterOther
	inputSubjectSource
	inputTokenIssuer
	inputTokenSubject
	inputSubjectIdentity
)

// Add implements provider.KeyBuilder.
func (k *keyBuilder) Add(name, value string) {
	if value == "" {
		return
	}
	k.buf = appendValue(appendValue(append(k.buf, byte(inputNamed)), name), value)
}

// AddList implements provider.KeyBuilder.
func (k *keyBuilder) AddList(name string, values []string) {
	if len(values) == 0 {
		return
	}
	k.buf = appendValues(appendValue(append(k.buf, byte(inputNamedList)), name), values)
}

// AddVariation leaves the input out of the key of a group.
func (k *keyBuilder) AddVariation(name string, values []string) {
	if len(values) == 0 {
		return
	}
	k.varied = true
	if !k.group {
		k.AddList(name, values)
	}
}

// appendInput writes one of the usual inputs.
func appendInput(b []byte, what input, value string) []byte {
	if value == "" {
		return b
	}
	if len(value) < maxShort {
		b = append(b, byte(what), byte(len(value))) //nolint:gosec // it was just compared
	} else {
		b = appendLength(append(b, byte(what)), len(value))
	}
	return append(b, value...)
}

// appendInputs is appendInput for several values, whose order counts.
func appendInputs(b []byte, what input, values []string) []byte {
	if len(values) == 0 {
		return b
	}
	return appendValues(append(b, byte(what)), values)
}

func appendValues(b []byte, values []string) []byte {
	b = appendLength(b, len(values))
	for _, v := range values {
		b = appendValue(b, v)
	}
	return b
}

func appendValue(b []byte, v string) []byte { return append(appendLength(b, len(v)), v...) }

// maxShort is the first length that takes more than one byte.
const maxShort = 1 << 7

func appendLength(b []byte, n int) []byte {
	return binary.AppendUvarint(b, uint64(n)) //nolint:gosec // a length
}

func (k *keyBuilder) sum() cache.Key { return sha256.Sum256(k.buf) }

// addAccessTokenKey writes everything that shapes an access token into the key. A token from the caller's source is part of
// that: its claims are not verified yet, so only callers that hold the same token may share its credential.
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
// (provider.KeyBuilder), such as the bound object. A key without variations needs no group.
//
// All other inputs of the key are in it, since a tenant can get each of them wrong for one object alone. A token that the caller
// holds is in it too: its claims are not verified, so a forged one could hold back the ServiceAccount that it names. So is the
// owner's namespace: tenants that share an identity hold back only themselves. Derived credentials have no group, because a
// registry that refuses says nothing of other registries; if their access token fails, they back off with it.
func (c *call) group(jwt string) cache.Key {
	if c.step == stepDerive || !c.key.varied {
		return cache.Key{}
	}
	k := keyBuilder{group: true}
	k.Add("owner", c.opts.owner().Namespace)
	c.addInputs(&k, jwt)
	return k.sum()
}

func (c *call) addInputs(k *keyBuilder, jwt string) {
	b := appendInput(k.buf, inputProvider, c.provider.GetName())
	b = appendInput(b, inputClusterID, c.opts.ClusterID)
	if sa := &c.account; c.hasSubject() {
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
	if s := c.opts.SubjectSource; s != nil {
		b = appendInput(k.buf, inputSubjectSource, s.Key())
		b = appendInput(b, inputTokenIssuer, c.opts.TokenIssuer)
		b = appendInput(b, inputTokenSubject, c.opts.TokenSubject)
		k.buf = appendInput(b, inputSubjectIdentity, c.subjectIdentity)
	}
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
	if p, ok := c.provider.(provider.CacheKeyContributor); ok {
		p.AddToCacheKey(k, c.serviceAccount(), &c.opts.Options)
	}
}

func (c *call) addLifetimes(k *keyBuilder) {
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
	jwt, expiry, err := c.askSource(ctx)
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

// askSource tells a TokenRequest also what the call knows of its tokens.
func (c *call) askSource(ctx context.Context) (string, time.Time, error) {
	if r, ok := c.opts.SubjectToken.(*TokenRequest); ok {
		return r.token(ctx, c.audiences, c.account.UID, c.opts.invalidBefore)
	}
	return c.opts.SubjectToken.Token(ctx, c.audiences)
}
