package spiffe_test

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

const (
	azureTenant = "11111111-2222-3333-4444-555555555555"
	azureDomain = "example.onmicrosoft.com"
	azureClient = "aaaaaaaa-2222-3333-4444-555555555555"
	azureOther  = "bbbbbbbb-2222-3333-4444-555555555555"
	pool        = "projects/123456789012/locations/global/workloadIdentityPools/spiffe/providers/example"
)

// receiver is a service that trusts the trust domain.
type receiver struct {
	make        func(*environment) auth.Provider
	annotations []string          // of Good and of all others
	different   map[string]string // with which Good gets another credential
	malformed   []string
	repository  string
	secrets     func(auth.Token) []string
}

func receivers() map[string]receiver {
	return map[string]receiver{
		"aws": {
			make:        func(*environment) auth.Provider { return &aws.Provider{} },
			annotations: []string{aws.RoleARNAnnotation, role("tenant-a")}, malformed: []string{aws.RoleARNAnnotation, "app"},
			repository: account + ".dkr.ecr.eu-central-1.amazonaws.com/app",
			secrets: func(token auth.Token) []string {
				own, _ := aws.FromToken(token)
				return []string{own.Credentials().SecretAccessKey, own.Credentials().SessionToken}
			},
		},
		"azure": {
			make:        func(*environment) auth.Provider { return &azure.Provider{} },
			annotations: []string{azure.ClientIDAnnotation, azureClient, azure.TenantIDAnnotation, azureTenant},
			different:   map[string]string{azure.ClientIDAnnotation: azureOther, azure.TenantIDAnnotation: azureDomain},
			malformed:   []string{azure.ClientIDAnnotation, "app", azure.TenantIDAnnotation, azureTenant},
			repository:  "example.azurecr.io/team/app",
			secrets: func(token auth.Token) []string {
				own, _ := azure.FromToken(token)
				return []string{own.AccessToken().Token}
			},
		},
		"gcp": {
			make:        func(*environment) auth.Provider { return &gcp.Provider{} },
			annotations: []string{gcp.WorkloadIdentityProviderAnnotation, pool},
			different:   map[string]string{gcp.WorkloadIdentityProviderAnnotation: pool + "2"},
			malformed:   []string{gcp.WorkloadIdentityProviderAnnotation, "app"},
			repository:  "europe-docker.pkg.dev/project/repo/app",
			secrets: func(token auth.Token) []string {
				own, _ := gcp.FromToken(token)
				return []string{own.AccessToken()}
			},
		},
		"exchange": {
			make: func(w *environment) auth.Provider {
				return &exchange.Provider{Endpoint: w.cloud.OAuth().TokenEndpoint()}
			},
			secrets: func(token auth.Token) []string {
				own, _ := exchange.FromToken(token)
				return []string{own.Reveal()}
			},
		},
	}
}

// trust makes all services trust both tenants.
func (w *environment) trust() {
	issuer, fetch := w.issuer.URL(), w.issuer.HTTPClient()
	w.cloud.Azure().AddTenant("login.microsoftonline.com", azureTenant, azureDomain)
	w.cloud.Azure().SetRegistry("example.azurecr.io", cloudtest.AzureRegistry{Tenant: azureTenant,
		Pull: []string{azureClient}})
	for _, tenant := range []string{"tenant-a", "tenant-b"} {
		for _, id := range []string{azureClient, azureOther} {
			w.cloud.Azure().AddFederatedCredential(azureTenant, id, cloudtest.FederatedCredential{Issuer: issuer,
				Subject: idOf(tenant, "app").String(), Audience: azure.DefaultAudience, Fetch: fetch})
		}
		w.cloud.OAuth().AddGrant(cloudtest.OAuthGrant{Issuer: issuer, Subjects: []string{idOf(tenant, "app").String()}})
	}
	w.cloud.AWS().SetRole(role("tenant-a"), cloudtest.Trust{Issuer: issuer,
		Subjects: []string{idOf("tenant-a", "app").String(), idOf("tenant-b", "app").String()}})
	for _, name := range []string{pool, pool + "2"} {
		w.cloud.GCP().SetWorkloadIdentityProvider(name, cloudtest.WorkloadIdentityProvider{Issuer: issuer, Fetch: fetch})
	}
	w.cloud.OAuth().AddIssuer(issuer, fetch, w.cloud.OAuth().TokenEndpoint())
}

// The contract of providers holds with JWT-SVIDs as subject tokens. The agent
// issues none for the ServiceAccount "stranger".
func TestConformance(t *testing.T) {
	t.Setenv("AZURE_TENANT_ID", "")
	for name, r := range receivers() {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t, testenv.ServiceAccount("tenant-b", "stranger", r.annotations...),
				testenv.ServiceAccount("tenant-a", "bad", r.malformed...))
			w.trust()
			w.agent.Register(key("tenant-a", "bad"), idOf("tenant-a", "bad"))
			for _, tenant := range []string{"tenant-a", "tenant-b"} {
				sa := &corev1.ServiceAccount{}
				if err := w.client.Get(t.Context(), key(tenant, "app"), sa); err != nil {
					t.Fatal(err)
				}
				sa.Annotations = testenv.ServiceAccount(tenant, "app", r.annotations...).Annotations
				if err := w.client.Update(t.Context(), sa); err != nil {
					t.Fatal(err)
				}
			}
			h := authtest.Harness{
				New: func(*testing.T) auth.Provider { return r.make(w) }, Fields: allFields(r.make(w)), NoRegions: name != "aws",
				Options: []auth.Option{auth.WithHTTPClient(w.cloud.Client())}, Client: w.client, Source: w.source,
				Good: key("tenant-a", "app"), Other: key("tenant-b", "app"), Refused: key("tenant-b", "stranger"),
				Annotations: r.different, Repository: r.repository, Break: w.breakAll,
				Calls:   func() int { return w.cloud.Calls("", "") },
				Secrets: func(_ *testing.T, token auth.Token) []string { return r.secrets(token) },
			}
			if name == "aws" {
				h.Options = append(h.Options, auth.WithSTSRegion("eu-central-1"))
			}
			if len(r.malformed) > 0 {
				h.Malformed = client.ObjectKey{Namespace: "tenant-a", Name: "bad"}
			}
			authtest.RunConformance(t, h)
		})
	}
}

// allFields leaves the fields of a provider to its own tests: a source changes
// nothing about them.
func allFields(p auth.Provider) map[string]any {
	fields := map[string]any{}
	for _, f := range reflect.VisibleFields(reflect.TypeOf(p).Elem()) {
		fields[f.Name] = nil
	}
	return fields
}

func (w *environment) breakAll(t *testing.T, how provider.Reason) {
	t.Cleanup(w.cloud.AddFault(map[provider.Reason]cloudtest.Fault{
		auth.ErrThrottled:   {Status: 429, Code: "Throttling", Message: "Rate exceeded", RetryAfter: "7"},
		auth.ErrUnavailable: {Status: 503, Code: "ServiceUnavailable"},
		authtest.Hang:       {Hang: true},
	}[how]))
}
