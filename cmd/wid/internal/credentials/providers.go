package credentials

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/auth/token"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// providers are all that the library has; exchange only if the flags say where.
func (id *Identity) providers() (*auth.ProviderSet, error) {
	// The flag asks for the longer lifetime explicitly, and the organization's policy still decides.
	id.gcp.AllowExtendedLifetime = true
	list := []auth.Provider{&id.aws, &id.azure, &id.gcp, &token.Provider{}}
	if id.exchange.Endpoint != "" || id.exchange.IssuerURL != "" {
		id.exchange.Client = id.exchangeClient()
		if len(id.audiences) == 1 {
			id.exchange.KubernetesAudience = id.audiences[0]
		}
		list = append(list, &id.exchange)
	} else if id.Provider == exchange.ProviderName {
		return nil, cli.Usagef("--provider exchange needs --exchange-endpoint or --exchange-issuer")
	}
	return auth.NewProviderSet(list...)
}

func providerNames() []string {
	return []string{aws.ProviderName, azure.ProviderName, gcp.ProviderName, token.ProviderName, exchange.ProviderName}
}

// checkProvider accepts the name of a provider in any case.
func (id *Identity) checkProvider() error {
	id.Provider = strings.ToLower(id.Provider)
	if id.Provider != "" && !slices.Contains(providerNames(), id.Provider) {
		return &auth.Error{Reason: auth.ErrMisconfigured, Message: fmt.Sprintf("there is no provider %.100q", id.Provider),
			Remedy: "use one of: " + strings.Join(providerNames(), ", ")}
	}
	return nil
}

// Named returns the provider of --provider.
func (id *Identity) Named() (auth.Provider, error) {
	if id.Provider == "" {
		return nil, cli.Usagef("name the provider with --provider, one of: %s", strings.Join(providerNames(), ", "))
	}
	set, err := id.providers()
	if err != nil {
		return nil, err
	}
	return set.Get(id.Provider)
}

// resolveNamed is resolve for commands whose provider is that of --provider, or the only cloud in the ServiceAccount's annotations.
func (id *Identity) resolveNamed(ctx context.Context, cmd *cobra.Command) (*Source, auth.Provider, error) {
	if id.Provider != "" || id.ServiceAccount == "" && !id.HasToken() {
		if _, err := id.Named(); err != nil { // before any request
			return nil, nil, err
		}
	}
	s, err := id.resolve(ctx, cmd)
	if err != nil {
		return nil, nil, err
	}
	if id.Provider == "" {
		if err := id.Detect(s); err != nil {
			return nil, nil, err
		}
	}
	provider, err := id.Named()
	return s, provider, err
}

// Detect sets --provider from the annotations.
func (id *Identity) Detect(s *Source) error {
	if s.readErr != nil {
		return cli.AnswerOf(s.readErr, fmt.Sprintf("read ServiceAccount %q", id.ServiceAccount))
	}
	found := CloudsOf(s.ServiceAccount)
	name := client.ObjectKeyFromObject(s.ServiceAccount).String()
	switch len(found) {
	case 0:
		return cli.Usagef("ServiceAccount %q has no annotation of a cloud, but %.500q: annotate it, or name the provider with --provider, one of: %s",
			name, slices.Sorted(maps.Keys(s.ServiceAccount.Annotations)), strings.Join(providerNames(), ", "))
	case 1:
		if err := id.Flags.Set("provider", found[0]); err != nil {
			return err
		}
		return id.checkGiven(id.Provider)
	}
	return cli.Usagef("ServiceAccount %q has annotations of %s: pick one with --provider", name, strings.Join(found, " and "))
}

// CloudsOf returns the providers whose annotations the ServiceAccount has.
func CloudsOf(sa *corev1.ServiceAccount) (found []string) {
	for _, cloud := range [][]string{{aws.ProviderName, aws.RoleARNAnnotation}, {azure.ProviderName, azure.ClientIDAnnotation},
		{gcp.ProviderName, gcp.ServiceAccountAnnotation, gcp.WorkloadIdentityProviderAnnotation}} {
		if slices.ContainsFunc(cloud[1:], func(key string) bool { return sa.Annotations[key] != "" }) {
			found = append(found, cloud[0])
		}
	}
	return found
}

// at returns the provider of --provider, or the one whose host it is. knows returns an error for a host that is a provider's
// but cannot be used.
func (id *Identity) at(what string, host string, knows func(p auth.Provider, o *auth.Options) (bool, error),
) (auth.Provider, error) {
	if id.Provider != "" {
		return id.Named()
	}
	set, err := id.providers()
	if err != nil {
		return nil, err
	}
	opts, err := id.Options()
	if err != nil {
		return nil, err
	}
	var o auth.Options
	for _, opt := range opts {
		opt(&o)
	}
	for _, name := range set.Names() {
		p, err := set.Get(name)
		if err != nil {
			return nil, err
		}
		if ours, err := knows(p, &o); ours || err != nil {
			return p, err
		}
	}
	return nil, &auth.Error{Reason: auth.ErrMisconfigured, Err: errNotOurs,
		Message: fmt.Sprintf("%.300q is not %s of any provider, so it gets no credential", host, what),
		Remedy:  "set wid up for hosts of AWS, Azure and Google Cloud only"}
}

// errNotOurs is wrapped by errors for hosts of no known provider.
var errNotOurs = errors.New("the host belongs to no provider")

func (id *Identity) atRegistry(repository string) (auth.Provider, error) {
	return id.at("a registry", repository, func(p auth.Provider, o *auth.Options) (bool, error) {
		r, ok := p.(auth.ArtifactRegistryCredentialsProvider)
		if !ok {
			return false, nil
		}
		_, err := r.ParseArtifactRepository(repository, o)
		if err == nil {
			return true, nil
		}
		host, hostErr := auth.RegistryHost(repository)
		if owner, ok := p.(auth.RegistryOwner); ok && hostErr == nil && owner.OwnsRegistry(host) {
			return false, err
		}
		return false, nil
	})
}

func (id *Identity) atRepository(u *url.URL) (auth.Provider, error) {
	return id.at("a Git repository", u.Redacted(), func(p auth.Provider, o *auth.Options) (bool, error) {
		g, ok := p.(auth.GitCredentialsProvider)
		if !ok || u.Scheme != "https" || u.User != nil {
			return false, nil
		}
		_, err := g.ParseGitRepository(u, o)
		return err == nil, nil
	})
}

// extras are the rare flags. Those of a provider's fields lead to the provider.
type extras struct {
	aws      aws.Provider
	azure    azure.Provider
	gcp      gcp.Provider
	exchange exchange.Provider

	allowShellOut bool
	tokenLifetime time.Duration
	boundObject   string

	assumeRoles       []string
	role              aws.AssumeRole // shapes the last of them
	sessionTags       []string
	sessionDuration   time.Duration
	sessionNamePrefix string

	delegates           []string
	accessTokenLifetime time.Duration
	idTokenAudience     string

	clientID, clientSecretFile string
}

// checkExtras refuses flags without effect.
func (id *Identity) checkExtras() error {
	if id.Provider != "" {
		if err := id.checkGiven(id.Provider); err != nil {
			return err
		}
	}
	for _, s := range id.Settings() {
		if len(id.assumeRoles) == 0 && s.option == "aws.WithAssumeRole" && id.changed(s.Name) {
			return cli.Usagef("--%s goes with --assume-role", s.Name)
		}
	}
	switch {
	case id.clientSecretFile != "" && id.clientID == "":
		return cli.Usagef("--exchange-client-secret-file goes with --exchange-client-id")
	case id.allowShellOut && (id.ServiceAccount != "" || id.HasToken()):
		return cli.Usagef("--allow-shell-out applies to wid's own identity; leave it out, or --service-account and the token")
	}
	return nil
}

// Options are those that do not depend on the identity. Providers ignore the options of others. Audiences are the caller's own
// choice here, annotations are not.
func (id *Identity) Options() ([]auth.Option, error) {
	opts, err := id.assumedRoles()
	if err != nil {
		return nil, err
	}
	bound, err := parseBoundObject(id.boundObject)
	if err != nil {
		return nil, err
	}
	proxy, err := url.Parse(id.proxyURL)
	if err != nil {
		return nil, cli.Usagef("--proxy-url is not a URL")
	}
	add := func(set bool, option func() auth.Option) {
		if set {
			opts = append(opts, option())
		}
	}
	opts = append(opts, auth.WithPolicy(auth.Policy{Audiences: id.policyAudiences(), AllowCluster: id.allowsCluster}))
	add(len(id.audiences) > 0, func() auth.Option { return auth.WithAudiences(id.audiences...) })
	add(len(id.scopes) > 0, func() auth.Option { return auth.WithScopes(id.scopes...) })
	add(id.region != "", func() auth.Option { return auth.WithSTSRegion(id.region) })
	add(id.stsEndpoint != "", func() auth.Option { return auth.WithSTSEndpoint(id.stsEndpoint) })
	add(id.proxyURL != "", func() auth.Option { return auth.WithProxyURL(*proxy) })
	add(id.HTTPClient != nil, func() auth.Option { return auth.WithHTTPClient(id.HTTPClient) })
	add(id.allowShellOut, auth.WithAllowShellOut)
	add(id.changed("token-lifetime"), func() auth.Option { return auth.WithTokenLifetime(id.tokenLifetime) })
	add(id.boundObject != "", func() auth.Option { return auth.WithBoundObject(bound) })
	add(id.changed("session-duration"), func() auth.Option { return aws.WithSessionDuration(id.sessionDuration) })
	add(id.changed("session-name-prefix"), func() auth.Option { return aws.WithSessionNamePrefix(id.sessionNamePrefix) })
	add(len(id.delegates) > 0, func() auth.Option { return gcp.WithDelegates(id.delegates...) })
	add(id.changed("access-token-lifetime"), func() auth.Option { return gcp.WithLifetime(id.accessTokenLifetime) })
	add(id.idTokenAudience != "", func() auth.Option { return gcp.WithIDTokenAudience(id.idTokenAudience) })
	return opts, nil
}

// assumedRoles is the chain of roles, the last one with all that shapes it.
func (id *Identity) assumedRoles() (opts []auth.Option, err error) {
	last := id.role
	last.Tags = map[string]string{}
	for _, tag := range id.sessionTags {
		key, value, ok := strings.Cut(tag, "=")
		if _, twice := last.Tags[key]; !ok || twice {
			return nil, cli.Usagef("--session-tag is key=value, each key once, not %.300q", tag)
		}
		last.Tags[key] = value
	}
	for n, arn := range id.assumeRoles {
		role := aws.AssumeRole{}
		if n == len(id.assumeRoles)-1 {
			role = last
		}
		role.RoleARN = arn
		opts = append(opts, aws.WithAssumeRole(role))
	}
	return opts, nil
}

// parseBoundObject wants the UID: a token that is kept must not outlive the object for another one of that name.
func parseBoundObject(s string) (authenticationv1.BoundObjectReference, error) {
	parts := strings.Split(s, "/")
	switch {
	case s == "":
		return authenticationv1.BoundObjectReference{}, nil
	case len(parts) != 3 || !slices.Contains([]string{"Pod", "Secret", "Node"}, parts[0]), slices.Contains(parts, ""):
		return authenticationv1.BoundObjectReference{},
			cli.Usagef("--bound-object is Pod/<name>/<UID>, or the same of a Secret or a Node, not %.300q", s)
	}
	uid := types.UID(parts[2])
	return authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: parts[0], Name: parts[1], UID: uid}, nil
}

// policyAudiences are those that the caller has chosen.
func (id *Identity) policyAudiences() []string {
	if id.idTokenAudience == "" {
		return id.audiences
	}
	return append(slices.Clone(id.audiences), id.idTokenAudience)
}

func (id *Identity) exchangeClient() exchange.ClientAuthentication {
	switch {
	case id.clientID == "":
		return nil
	case id.clientSecretFile == "":
		return exchange.PublicClient(id.clientID)
	}
	return exchange.ClientSecretBasic(id.clientID, func(context.Context) (string, error) {
		content, err := id.clientSecret()
		if err != nil {
			return "", &auth.Error{Reason: auth.ErrMisconfigured, Err: err, Remedy: "name a file with nothing but the secret",
				Message: "--exchange-client-secret-file cannot be read: " + cli.OneLine(err.Error())}
		}
		return strings.TrimSpace(string(content)), nil
	})
}
