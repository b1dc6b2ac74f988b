package soak

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cloudtest"
)

// side is one of the clouds.
type side struct {
	name     string
	provider *metered
	// tokenServices and others are those of cloudtest.Cloud that exchanges
	// need.
	tokenServices, others []string
	repository            string
	options               []auth.Option
	// purposes is how many credentials the cache holds for a tenant that uses a
	// registry.
	purposes int
	// requests is how many an exchange takes at most, if all goes well.
	requests int
	// requestsFor is how many one for a purpose takes if all goes well.
	requestsFor func(p purpose) int64

	// annotations are those that ask for one of a tenant's two identities.
	annotations func(t *tenant, variant int) map[string]string
	// identity is what a provider reads in annotations, "" if nothing.
	identity func(annotations map[string]string) string
	// grant has the cloud trust the tenant, and returns how it calls the two
	// identities.
	grant func(t *tenant) [2]string
	// owner asks the cloud whose credential it is.
	owner func(token auth.Token) (principal string, ok bool)
	// present uses a credential.
	present func(ctx context.Context, token auth.Token) error
}

const (
	account    = "123456789012"
	region     = "eu-central-1"
	entra      = "11111111-2222-3333-4444-555555555555"
	pool       = "projects/123456/locations/global/workloadIdentityPools/soak"
	poolOf     = pool + "/providers/cluster"
	direct     = "direct" // the identity of a Google Cloud ServiceAccount that is not impersonated
	principals = "principal://iam.googleapis.com/" + pool + "/subject/"
)

func (w *environment) sides() []*side {
	return []*side{w.awsSide(), w.azureSide(), w.gcpSide()}
}

func (w *environment) awsSide() *side {
	cloud := w.cloud.AWS()
	cloud.AddOIDCProvider(account, w.issuer, w.issuerClient, aws.DefaultAudience)
	role := func(t *tenant, variant int) string {
		return fmt.Sprintf("arn:aws:iam::%s:role/%s-%s-%d", account, t.key.Namespace, t.key.Name, variant)
	}
	s := &side{name: aws.ProviderName, tokenServices: []string{"sts"}, others: []string{"ecr"}, purposes: 2, requests: 1,
		repository: account + ".dkr.ecr." + region + ".amazonaws.com/app", options: []auth.Option{auth.WithSTSRegion(region)}}
	s.annotations = func(t *tenant, variant int) map[string]string {
		return map[string]string{aws.RoleARNAnnotation: role(t, variant)}
	}
	s.identity = func(a map[string]string) string { return a[aws.RoleARNAnnotation] }
	s.requestsFor = func(purpose) int64 { return 1 }
	s.grant = func(t *tenant) (names [2]string) {
		for variant := range names {
			cloud.SetRole(role(t, variant), cloudtest.Trust{Issuer: w.issuer, Subjects: []string{t.subject()}})
			names[variant] = role(t, variant) + " " + t.subject()
		}
		return names
	}
	s.owner = func(token auth.Token) (string, bool) {
		id, ok := cloudtest.Identity{}, false
		switch token := token.(type) {
		case *aws.Token:
			id, ok = cloud.Identity(token.AccessKeyID())
		case *auth.ArtifactRegistryCredentials:
			user, password := secretOf(token)
			id, ok = cloud.ValidRegistryPassword(hostOf(s.repository), user, password)
		}
		return id.RoleARN + " " + id.Subject, ok
	}
	s.present = func(ctx context.Context, token auth.Token) error {
		own, ok := token.(*aws.Token)
		if !ok {
			return w.pull(ctx, "https://"+hostOf(s.repository)+"/v2/", token)
		}
		c := own.Credentials()
		_, err := sts.New(sts.Options{Region: region, HTTPClient: w.httpClient, RetryMaxAttempts: 1,
			Credentials: credentials.NewStaticCredentialsProvider(c.AccessKeyID, c.SecretAccessKey, c.SessionToken),
		}).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
		return err
	}
	return w.metered(s, &aws.Provider{})
}

func (w *environment) azureSide() *side {
	cloud := w.cloud.Azure()
	client := func(t *tenant, variant int) string { return fmt.Sprintf("%08x-0000-4000-8000-%012x", t.n, variant) }
	s := &side{name: azure.ProviderName, tokenServices: []string{"entra"}, others: []string{"acr"}, purposes: 3,
		requests:   1,
		repository: "soakregistry.azurecr.io/app"}
	s.annotations = func(t *tenant, variant int) map[string]string {
		return map[string]string{azure.ClientIDAnnotation: client(t, variant), azure.TenantIDAnnotation: entra}
	}
	s.identity = func(a map[string]string) string { return a[azure.ClientIDAnnotation] }
	s.requestsFor = func(purpose) int64 { return 1 }
	var pull []string
	s.grant = func(t *tenant) (names [2]string) {
		for variant := range names {
			cloud.AddFederatedCredential(entra, client(t, variant), cloudtest.FederatedCredential{
				Issuer: w.issuer, Subject: t.subject(), Audience: azure.DefaultAudience, Fetch: w.issuerClient})
			names[variant] = client(t, variant) + " " + t.subject()
			pull = append(pull, client(t, variant))
		}
		cloud.SetRegistry(hostOf(s.repository), cloudtest.AzureRegistry{Tenant: entra, Pull: pull})
		return names
	}
	s.owner = func(token auth.Token) (string, bool) {
		id, ok := cloudtest.AzureIdentity{}, false
		switch token := token.(type) {
		case *azure.Token:
			id, ok = cloud.Identity(token.AccessToken().Token)
		case *auth.ArtifactRegistryCredentials:
			_, password := secretOf(token)
			id, ok = cloud.Identity(password)
		}
		return id.ClientID + " " + id.Subject, ok
	}
	s.present = func(ctx context.Context, token auth.Token) error {
		host := hostOf(s.repository)
		own, ok := token.(*azure.Token)
		if !ok {
			return w.pull(ctx, "https://"+host+"/oauth2/token?service="+host, token)
		}
		form := url.Values{"grant_type": {"access_token"}, "service": {host}, "tenant": {entra},
			"access_token": {own.AccessToken().Token}}
		body := strings.NewReader(form.Encode())
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+host+"/oauth2/exchange", body)
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		return w.do(req)
	}
	return w.metered(s, &azure.Provider{})
}

func (w *environment) gcpSide() *side {
	cloud := w.cloud.GCP()
	cloud.SetWorkloadIdentityProvider(poolOf, cloudtest.WorkloadIdentityProvider{Issuer: w.issuer, Fetch: w.issuerClient})
	email := func(t *tenant) string { return fmt.Sprintf("tenant-%05d@soak-project.iam.gserviceaccount.com", t.n) }
	s := &side{name: gcp.ProviderName, tokenServices: []string{"gcp-sts", "iamcredentials"}, purposes: 2, requests: 2,
		repository: "europe-docker.pkg.dev/soak/app"}
	// One identity is impersonated, the other is the ServiceAccount itself.
	s.annotations = func(t *tenant, variant int) map[string]string {
		a := map[string]string{gcp.WorkloadIdentityProviderAnnotation: poolOf}
		if variant == 0 {
			a[gcp.ServiceAccountAnnotation] = email(t)
		}
		return a
	}
	s.identity = func(a map[string]string) string {
		if a[gcp.ServiceAccountAnnotation] == "" && a[gcp.WorkloadIdentityProviderAnnotation] != "" {
			return direct
		}
		return a[gcp.ServiceAccountAnnotation]
	}
	s.requestsFor = func(p purpose) int64 {
		switch {
		case p.kind == registryKind:
			return 0 // the access token is the password
		case p.identity == direct:
			return 1
		}
		return 2
	}
	s.grant = func(t *tenant) [2]string {
		cloud.SetServiceAccount(email(t),
			cloudtest.GCPServiceAccount{WorkloadIdentityUsers: []string{principals + t.subject()}})
		return [2]string{email(t) + " ", " " + t.subject()}
	}
	s.owner = func(token auth.Token) (string, bool) {
		secret := ""
		switch token := token.(type) {
		case *gcp.Token:
			secret = token.AccessToken()
		case *auth.ArtifactRegistryCredentials:
			_, secret = secretOf(token)
		}
		id, ok := cloud.Identity(secret)
		return id.Email + " " + id.Subject, ok
	}
	s.present = func(ctx context.Context, token auth.Token) error {
		if own, ok := token.(*gcp.Token); ok {
			token = provider.NewArtifactRegistryCredentials("oauth2accesstoken", own.AccessToken(), own.ExpiresAt())
		}
		return w.pull(ctx, "https://"+hostOf(s.repository)+"/v2/token", token)
	}
	return w.metered(s, &gcp.Provider{})
}

// pull logs in at a registry.
func (w *environment) pull(ctx context.Context, address string, token auth.Token) error {
	credentials, ok := token.(*auth.ArtifactRegistryCredentials)
	if !ok {
		return fmt.Errorf("%T is not for registries", token)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	req.SetBasicAuth(secretOf(credentials))
	return w.do(req)
}

func (w *environment) do(req *http.Request) error {
	resp, err := w.httpClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %d", req.URL.Host, resp.StatusCode)
	}
	return nil
}

func secretOf(c *auth.ArtifactRegistryCredentials) (user, password string) {
	config, err := c.Authorization()
	if err != nil {
		return "", ""
	}
	return config.Username, config.Password
}

func hostOf(repository string) string {
	host, _, _ := strings.Cut(repository, "/")
	return host
}
