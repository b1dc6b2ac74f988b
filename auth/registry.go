package auth

import "context"

const opRegistry = "get artifact registry credentials"

// GetArtifactRegistryCredentials returns credentials for the registry of an artifact repository, such as
// "123456789012.dkr.ecr.eu-central-1.amazonaws.com/app". The provider refuses registries that are not its own, with
// ErrMisconfigured: nobody else gets to see the credentials. NewKeychain picks the provider by the registry.
//
// Policy, cache and errors are those of GetAccessToken. Credentials that are cached cost one look-up: no access token is
// asked for. It is safe for concurrent use.
func GetArtifactRegistryCredentials(ctx context.Context, provider Provider, artifactRepository string, opts ...Option,
) (*ArtifactRegistryCredentials, error) {
	token, err := getDerived(ctx, provider, opRegistry, registryKind, artifactRepository, nil, opts)
	return as[*ArtifactRegistryCredentials](token, err)
}

func (c *call) prepareRegistry() error {
	p, ok := c.provider.(ArtifactRegistryCredentialsProvider)
	if !ok {
		return c.incapable("artifact registries")
	}
	input, err := p.ParseArtifactRepository(c.input, &c.opts)
	if err != nil {
		return err
	}
	if input == "" {
		return misconfigured("have ParseArtifactRepository return one", "the provider knows no input for the registry")
	}
	c.input = input
	list, err := p.GetAccessTokenOptionsForArtifactRepository(input, &c.opts)
	if len(list) > 0 {
		c.lists = [][]Option{list}
	}
	return err
}

func (m *minter) newRegistryCredentials(ctx context.Context) (Token, error) {
	p, ok := m.provider.(ArtifactRegistryCredentialsProvider)
	if !ok {
		return nil, m.incapable("artifact registries")
	}
	return tokenOrNil(p.NewArtifactRegistryCredentials(ctx, m.input, m.tokens[0], &m.opts))
}

// getDerived is what the Get functions for derived credentials share.
func getDerived(ctx context.Context, provider Provider, operation string, kind derivedKind, input string, source *clusterSource,
	opts []Option) (token Token, err error) {
	c := beginCall(provider, operation, opts)
	defer c.end(&token, &err)
	c.kind, c.input, c.source = kind, input, source
	if kind == clusterKind && c.opts.Usage == UsageAccess {
		c.opts.Usage = UsageKubeConfig
	}
	if err := c.prepare(ctx); err != nil {
		return nil, err
	}
	return c.derivedCredential(ctx)
}

// as asserts the type of what the cache holds under a key that only one Get function makes.
func as[T Token](token Token, err error) (T, error) {
	var none T
	if err != nil {
		return none, err
	}
	t, ok := token.(T)
	if !ok {
		return none, &Error{Reason: ErrUnavailable, Message: "the token cache holds something else; this is a bug in auth"}
	}
	return t, nil
}

// tokenOrNil keeps a nil pointer from becoming a Token that is not nil.
func tokenOrNil[T interface {
	comparable
	Token
}](token T, err error) (Token, error) {
	var none T
	if err != nil || token == none {
		return nil, err
	}
	return token, nil
}
