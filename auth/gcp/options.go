package gcp

import (
	"slices"
	"strings"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/internal/oauth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/address"
	"github.com/workloadid/workloadid/internal/gcpname"
)

// The keys of this package's options. All options are part of the cache key.
type (
	delegatesOption struct{}
	lifetimeOption  struct{}
	idTokenOption   struct{}
)

// Values of auth.Error.Option.
const optionDelegates, optionLifetime = "gcp.WithDelegates", "gcp.WithLifetime"

// WithDelegates sets the e-mail addresses of the service accounts between the
// ServiceAccount and the service account of its annotation. Each needs the role
// roles/iam.serviceAccountTokenCreator on the next one. The first has to trust
// the ServiceAccount. The option needs a ServiceAccount with
// [ServiceAccountAnnotation].
func WithDelegates(emails ...string) auth.Option {
	return auth.WithProviderOption(delegatesOption{}, slices.Clone(emails))
}

// WithLifetime sets the lifetime of access tokens in whole seconds. The maximum
// and the default are an hour (see [Provider.AllowExtendedLifetime]). The
// option needs a ServiceAccount with [ServiceAccountAnnotation].
func WithLifetime(d time.Duration) auth.Option {
	return auth.WithProviderOption(lifetimeOption{}, d)
}

// WithIDTokenAudience makes [auth.GetAccessToken] return an *IDToken with this
// audience instead of an access token. Services other than Google's own, such
// as one on Cloud Run, accept it. [auth.Policy.Audiences] has to list the
// audience. The option needs a ServiceAccount with [ServiceAccountAnnotation],
// or the controller's own identity from the metadata server.
func WithIDTokenAudience(audience string) auth.Option {
	return auth.WithProviderOption(idTokenOption{}, audience)
}

func delegates(opts *provider.Options) []string {
	emails, _ := opts.Value(delegatesOption{}).([]string)
	return emails
}

func lifetime(opts *provider.Options) (d time.Duration, set bool) {
	d, set = opts.Value(lifetimeOption{}).(time.Duration)
	return d, set
}

func idTokenAudience(opts *provider.Options) (audience string, set bool) {
	audience, set = opts.Value(idTokenOption{}).(string)
	return audience, set
}

const (
	maxDelegates        = 16
	maxLifetime         = time.Hour
	maxExtendedLifetime = 12 * time.Hour
)

func (p *Provider) checkOptions(opts *provider.Options) error {
	emails := delegates(opts)
	if len(emails) > maxDelegates {
		return self.Misconfigured("shorten the chain", "there are %d delegates, at most %d are allowed", len(emails),
			maxDelegates)
	}
	for _, email := range emails {
		if err := gcpname.CheckServiceAccountEmail(email); err != nil {
			return self.Misconfigured("use <name>@<project>.iam.gserviceaccount.com",
				"the delegate %.300q is not the e-mail address of a service account: %v", email, err)
		}
	}
	d, asked := lifetime(opts)
	if err := p.checkLifetime(d); asked && err != nil {
		return err
	}
	audience, ofIDToken := idTokenAudience(opts)
	switch {
	case ofIDToken && asked:
		return self.Misconfigured("leave it out", "the lifetime of ID tokens cannot be chosen").About(optionLifetime)
	case opts.IsOwnIdentity() && (asked || len(emails) > 0):
		return self.Misconfigured("leave them out, or name a ServiceAccount",
			"delegates and the lifetime of access tokens do not apply without a ServiceAccount").About(optionDelegates,
			optionLifetime)
	case ofIDToken:
		return opts.CheckAudience(audience)
	}
	return nil
}

// checkLifetime applies the limits of generateAccessToken.
func (p *Provider) checkLifetime(d time.Duration) error {
	switch {
	case d < time.Second || d%time.Second != 0:
		return self.Misconfigured("use one such as 15m", "access tokens cannot live for %s", d)
	case d > maxExtendedLifetime:
		return self.Misconfigured("use at most 12h", "access tokens cannot live for %s", d)
	case d > maxLifetime && !p.AllowExtendedLifetime:
		return self.Misconfigured("use at most 1h, or allow more where the organization does",
			"access tokens cannot live for %s", d).
			About("gcp.Provider.AllowExtendedLifetime")
	}
	return nil
}

// needsImpersonation refuses options that have no effect without impersonation.
func needsImpersonation(opts *provider.Options) error {
	_, lifetimeSet := lifetime(opts)
	_, ofIDToken := idTokenAudience(opts)
	var what, option string
	switch {
	case ofIDToken:
		what, option = "an ID token", "gcp.WithIDTokenAudience"
	case len(delegates(opts)) > 0:
		what, option = "delegation", optionDelegates
	case lifetimeSet:
		what, option = "the lifetime of access tokens", optionLifetime
	default:
		return nil
	}
	return self.Misconfigured(
		"set it to the e-mail address of the service account to impersonate, or leave the option out",
		"%s needs the annotation %q, which is missing", what, ServiceAccountAnnotation).About(option)
}

func addOptionsToKey(key provider.KeyBuilder, opts *provider.Options) {
	key.AddList("gcpDelegates", delegates(opts))
	if d, ok := lifetime(opts); ok {
		key.Add("gcpLifetime", d.String())
	}
	if audience, ok := idTokenAudience(opts); ok {
		key.Add("gcpIDToken", audience)
	}
}

// scopes returns the scopes of the access token.
func scopes(opts *provider.Options) []string {
	if len(opts.Scopes) > 0 {
		return opts.Scopes
	}
	return []string{scopeCloudPlatform, scopeEmail}
}

const (
	scopeCloudPlatform = "https://www.googleapis.com/auth/cloud-platform"
	scopeEmail         = "https://www.googleapis.com/auth/userinfo.email"
)

// validScope refuses the comma, because the metadata server separates scopes by
// commas.
func validScope(s string) bool { return oauth.ValidScope(s) && !strings.Contains(s, ",") }

// stsURL returns the address of the token endpoint, which receives the
// ServiceAccount's token.
func (p *Provider) stsURL(opts *provider.Options) (string, error) {
	if opts.STSEndpoint == "" {
		return "https://sts." + p.universe() + stsPath, nil
	}
	host, err := p.checkSTSEndpoint(opts.STSEndpoint)
	if err != nil {
		return "", self.Misconfigured("leave it out, or use https://sts."+p.universe(), "%v", err)
	}
	return "https://" + host + stsPath, nil
}

// otherService returns the host of a service other than Google's, with its
// port. It returns "" if the options name none. ValidateOptions has allowed the
// host.
func (p *Provider) otherService(opts *provider.Options) string {
	if opts.STSEndpoint == "" {
		return ""
	}
	u, err := address.Parse("STS endpoint", strings.TrimSuffix(opts.STSEndpoint, stsPath), 0)
	if err != nil || gcpname.IsSTSHost(u.Hostname(), p.universe()) {
		return ""
	}
	return u.Host
}

const stsPath = "/v1/token"

func (p *Provider) checkSTSEndpoint(endpoint string) (host string, err error) {
	u, err := address.Parse("STS endpoint", strings.TrimSuffix(endpoint, stsPath), 0)
	switch {
	case err != nil:
		return "", err
	case slices.Contains(p.AllowedSTSHosts, u.Host),
		gcpname.IsSTSHost(u.Hostname(), p.universe()) && (u.Port() == "" || u.Port() == "443"):
		return u.Host, nil
	}
	return "", address.Refuse("STS endpoint", endpoint, "it is not one of the security token service")
}
