package gcp

import (
	"slices"
	"strings"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/address"
	"github.com/workloadid/workloadid/internal/gcpname"
	"github.com/workloadid/workloadid/internal/oauth"
)

// option is the type of the keys under which auth.Options keep the options of this package.
type option int

const (
	delegatesOption option = iota
	lifetimeOption
	idTokenOption
)

// WithDelegates sets the service accounts, by their e-mail addresses, that stand between the ServiceAccount and the service
// account of its annotation: each has to have the role roles/iam.serviceAccountTokenCreator on the next, and the first has
// to trust the ServiceAccount. Only for ServiceAccounts with ServiceAccountAnnotation.
func WithDelegates(emails ...string) auth.Option {
	return auth.WithProviderOption(delegatesOption, slices.Clone(emails))
}

// WithLifetime sets the lifetime to ask of access tokens, in whole seconds, at most an hour (see
// Provider.AllowExtendedLifetime). Without it they live for an hour. Only for ServiceAccounts with
// ServiceAccountAnnotation: nobody else is asked.
func WithLifetime(d time.Duration) auth.Option {
	return auth.WithProviderOption(lifetimeOption, d)
}

// WithIDTokenAudience has auth.GetAccessToken return an *IDToken with that audience, signed by Google, instead of an access
// token: for services that are not Google's own, such as those on Cloud Run. The audience has to be listed in
// auth.Policy.Audiences. Only for ServiceAccounts with ServiceAccountAnnotation, and for the controller's own identity where
// that comes from the metadata server.
func WithIDTokenAudience(audience string) auth.Option {
	return auth.WithProviderOption(idTokenOption, audience)
}

func delegates(opts *auth.Options) []string {
	emails, _ := opts.ProviderOption(delegatesOption).([]string)
	return emails
}

func lifetime(opts *auth.Options) (d time.Duration, set bool) {
	d, set = opts.ProviderOption(lifetimeOption).(time.Duration)
	return d, set
}

func idTokenAudience(opts *auth.Options) (audience string, set bool) {
	audience, set = opts.ProviderOption(idTokenOption).(string)
	return audience, set
}

const (
	maxDelegates        = 16
	maxLifetime         = time.Hour
	maxExtendedLifetime = 12 * time.Hour
)

func (p *Provider) validateOwnOptions(opts *auth.Options) error {
	emails := delegates(opts)
	if len(emails) > maxDelegates {
		return self.Misconfigured("shorten the chain", "there are %d delegates, at most %d are allowed", len(emails), maxDelegates)
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
		return self.Misconfigured("leave WithLifetime out", "the lifetime of ID tokens cannot be chosen")
	case opts.ServiceAccount == nil && opts.SubjectServiceAccount == nil && (asked || len(emails) > 0):
		return self.Misconfigured("leave them out, or name a ServiceAccount",
			"WithDelegates and WithLifetime do not apply without a ServiceAccount")
	case ofIDToken:
		return opts.CheckAudience(audience)
	}
	return nil
}

// checkLifetime has the limits of generateAccessToken.
func (p *Provider) checkLifetime(d time.Duration) error {
	switch {
	case d < time.Second || d%time.Second != 0:
		return self.Misconfigured("use one such as 15m", "access tokens cannot live for %s", d)
	case d > maxExtendedLifetime:
		return self.Misconfigured("use at most 12h", "access tokens cannot live for %s", d)
	case d > maxLifetime && !p.AllowExtendedLifetime:
		return self.Misconfigured("use at most 1h, or set Provider.AllowExtendedLifetime", "access tokens cannot live for %s", d)
	}
	return nil
}

// needsImpersonation refuses what only impersonation can do.
func needsImpersonation(opts *auth.Options) error {
	_, lifetimeSet := lifetime(opts)
	_, ofIDToken := idTokenAudience(opts)
	var what string
	switch {
	case ofIDToken:
		what = "WithIDTokenAudience"
	case len(delegates(opts)) > 0:
		what = "WithDelegates"
	case lifetimeSet:
		what = "WithLifetime"
	default:
		return nil
	}
	return self.Misconfigured("set it to the e-mail address of the service account to impersonate",
		"%s needs the annotation %q, which is missing", what, ServiceAccountAnnotation)
}

func addOptionsToKey(key *auth.KeyBuilder, opts *auth.Options) {
	key.AddList("gcpDelegates", delegates(opts))
	if d, ok := lifetime(opts); ok {
		key.Add("gcpLifetime", d.String())
	}
	if audience, ok := idTokenAudience(opts); ok {
		key.Add("gcpIDToken", audience)
	}
}

// scopes returns those of the access token.
func scopes(opts *auth.Options) []string {
	if len(opts.Scopes) > 0 {
		return opts.Scopes
	}
	return []string{scopeCloudPlatform, scopeEmail}
}

const (
	scopeCloudPlatform = "https://www.googleapis.com/auth/cloud-platform"
	scopeEmail         = "https://www.googleapis.com/auth/userinfo.email"
)

// validScope refuses the comma, which the metadata server takes for a separator.
func validScope(s string) bool { return oauth.ValidScope(s) && !strings.Contains(s, ",") }

// stsURL returns the address of the token endpoint, which gets the ServiceAccount's token.
func (p *Provider) stsURL(opts *auth.Options) (string, error) {
	if opts.STSEndpoint == "" {
		return "https://sts." + p.universe() + stsPath, nil
	}
	host, err := p.checkSTSEndpoint(opts.STSEndpoint)
	if err != nil {
		return "", self.Misconfigured("leave it out, or use https://sts."+p.universe(), "%v", err)
	}
	return "https://" + host + stsPath, nil
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
