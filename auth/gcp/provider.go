package gcp

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/annotation"
	"github.com/workloadid/workloadid/internal/gcpname"
)

// ProviderName is the name by which users pick this provider.
const ProviderName = "gcp"

const self = provider.Name(ProviderName)

// Annotations of the ServiceAccount.
const (
	// ServiceAccountAnnotation holds the e-mail address of the service account
	// to impersonate. GKE defines it. Without it, the Kubernetes ServiceAccount
	// itself has access, as a principal of the workload identity pool.
	ServiceAccountAnnotation = annotation.GCPServiceAccount
	// WorkloadIdentityProviderAnnotation names a workload identity provider
	// that trusts the cluster, projects/<project
	// number>/locations/global/workloadIdentityPools/<pool>/providers/<provider>.
	// Required outside GKE.
	WorkloadIdentityProviderAnnotation = annotation.GCPWorkloadIdentityProvider
)

// Provider implements [auth.Provider] for Google Cloud. The zero value is ready
// for use. It keeps connections and the name of the GKE cluster, so share one
// in the whole controller. It is safe for concurrent use, as long as its fields
// stay unchanged.
type Provider struct {
	// UniverseDomain is the domain of the cloud's services. Empty:
	// googleapis.com, Google's own cloud.
	UniverseDomain string
	// AllowExtendedLifetime lets WithLifetime ask for up to twelve hours. The
	// organization policy
	// constraints/iam.allowServiceAccountCredentialLifetimeExtension has to
	// list the service accounts.
	AllowExtendedLifetime bool
	// AllowedSTSHosts are further hosts for auth.WithSTSEndpoint, with the port
	// if it is not 443. They receive the tokens of ServiceAccounts. Tokens for
	// a host that is not Google's own have the audience https://<host>.
	AllowedSTSHosts []string
	// STSAudiences replaces this audience, by host of AllowedSTSHosts.
	STSAudiences map[string]string

	clients  provider.HTTPClients
	metadata metadataClient
	cluster  clusterLoader
}

var (
	_ auth.Provider                = (*Provider)(nil)
	_ provider.OptionsValidator    = (*Provider)(nil)
	_ provider.AnnotationReader    = (*Provider)(nil)
	_ provider.CacheKeyContributor = (*Provider)(nil)
)

// GetName returns [ProviderName].
func (*Provider) GetName() string { return ProviderName }

func (p *Provider) universe() string {
	if p.UniverseDomain == "" {
		return gcpname.DefaultUniverse
	}
	return p.UniverseDomain
}

// ValidateOptions refuses a malformed universe, a foreign STS endpoint, and
// options that contradict each other.
func (p *Provider) ValidateOptions(opts *provider.Options) error {
	if p.UniverseDomain != "" && !gcpname.ValidUniverse(p.UniverseDomain) {
		return self.Misconfigured("use one such as googleapis.com",
			"%.100q is not a universe domain", p.UniverseDomain).About("gcp.Provider.UniverseDomain")
	}
	if opts.STSEndpoint != "" {
		if _, err := p.stsURL(opts); err != nil {
			return err
		}
	}
	for _, scope := range opts.Scopes {
		if !validScope(scope) {
			return self.Misconfigured("use one such as https://www.googleapis.com/auth/cloud-platform",
				"%.100q is not a scope", scope)
		}
	}
	return p.checkOptions(opts)
}

// GetAnnotations implements [provider.AnnotationReader].
func (*Provider) GetAnnotations() []string {
	return []string{ServiceAccountAnnotation, WorkloadIdentityProviderAnnotation}
}

// AddToCacheKey implements [provider.CacheKeyContributor].
func (p *Provider) AddToCacheKey(key provider.KeyBuilder, sa *corev1.ServiceAccount, opts *provider.Options) {
	key.Add("gcpUniverse", p.UniverseDomain)
	if sa != nil {
		// The exchange has this audience, even if the caller chose another
		// audience for the ServiceAccount's token.
		key.Add("gcpProvider", sa.Annotations[WorkloadIdentityProviderAnnotation])
	}
	addOptionsToKey(key, opts)
}

// GetAudiences returns the full resource name of the provider that
// [WorkloadIdentityProviderAnnotation] names. Without the annotation it returns
// the workload identity pool of the GKE cluster, which it learns once from the
// metadata server. For a service other than Google's it returns the audience
// from STSAudiences, else the service's URL. Such a service never gets Google's
// audience, because it could use the token at Google.
func (p *Provider) GetAudiences(ctx context.Context, sa *corev1.ServiceAccount,
	opts *provider.Options) ([]string, error) {
	if host := p.otherService(opts); host != "" {
		return []string{p.audienceOf(host)}, nil
	}
	if _, ok := sa.Annotations[WorkloadIdentityProviderAnnotation]; ok {
		w, err := p.workloadIdentityProvider(sa)
		if err != nil {
			return nil, err
		}
		return []string{p.resourceName(w)}, nil
	}
	cluster, err := p.gkeCluster(ctx, opts)
	if err != nil {
		return nil, err
	}
	return cluster.audiences[:], nil
}

// audienceOf returns the audience of a service other than Google's.
func (p *Provider) audienceOf(host string) string {
	return cmp.Or(p.STSAudiences[host], "https://"+host)
}

// resourceName is the audience that names a provider at the security token
// service.
func (p *Provider) resourceName(w gcpname.WorkloadIdentityProvider) string {
	return "//iam." + p.universe() + "/" + w.Name
}

// GetIdentity returns the e-mail address of the service account to impersonate,
// or "" without one.
func (p *Provider) GetIdentity(sa *corev1.ServiceAccount, opts *provider.Options) (string, error) {
	if _, ok := sa.Annotations[WorkloadIdentityProviderAnnotation]; ok {
		if _, err := p.workloadIdentityProvider(sa); err != nil {
			return "", err
		}
	}
	email, ok := sa.Annotations[ServiceAccountAnnotation]
	if !ok {
		return "", needsImpersonation(opts)
	}
	if err := gcpname.CheckServiceAccountEmail(email); err != nil {
		return "", self.MisconfiguredAs(provider.CauseIdentityMalformed, "set it to <name>@<project>.iam.gserviceaccount.com",
			"the annotation %q is not the e-mail address of a service account: %v: %.300q", ServiceAccountAnnotation, err, email)
	}
	return email, nil
}

func (p *Provider) workloadIdentityProvider(sa *corev1.ServiceAccount) (gcpname.WorkloadIdentityProvider, error) {
	name := sa.Annotations[WorkloadIdentityProviderAnnotation]
	w, err := gcpname.ParseWorkloadIdentityProvider(name, p.universe())
	if err != nil {
		return w, self.MisconfiguredAs(provider.CauseTargetMalformed,
			"set it to projects/<project number>/locations/global/workloadIdentityPools/<pool>/providers/<provider>",
			"the annotation %q is not the name of a workload identity provider: %v: %.300q",
			WorkloadIdentityProviderAnnotation, err, name)
	}
	return w, nil
}
