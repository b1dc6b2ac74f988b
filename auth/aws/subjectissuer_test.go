package aws_test

import (
	"context"
	"maps"
	"reflect"
	"testing"
	"time"

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

// allFields leaves the fields of a provider to its own tests: a source changes
// nothing about them.
func allFields(p auth.Provider) map[string]any {
	fields := map[string]any{}
	for _, f := range reflect.VisibleFields(reflect.TypeOf(p).Elem()) {
		fields[f.Name] = nil
	}
	return fields
}

// The contract of providers holds with a role as subject.
func TestConformanceWithARoleAsSubject(t *testing.T) {
	for name, tc := range map[string]struct {
		make      func(f *federation) auth.Provider
		repo      string
		different map[string]string // of annotations
		secrets   func(auth.Token) []string
	}{
		"azure": {func(*federation) auth.Provider { return &azure.Provider{} }, "example.azurecr.io/team/app",
			map[string]string{azure.ClientIDAnnotation: azureOther,
				azure.TenantIDAnnotation: azureDomain}, func(token auth.Token) []string {
				own, _ := azure.FromToken(token)
				return []string{own.AccessToken().Token}
			}},
		"gcp": {func(*federation) auth.Provider { return &gcp.Provider{} }, "europe-docker.pkg.dev/project/repo/app",
			map[string]string{gcp.WorkloadIdentityProviderAnnotation: poolOfAWS + "2"}, func(token auth.Token) []string {
				own, _ := gcp.FromToken(token)
				return []string{own.AccessToken()}
			}},
		"exchange": {func(f *federation) auth.Provider {
			return &exchange.Provider{Endpoint: f.cloud.OAuth().TokenEndpoint()}
		}, "",
			nil, func(token auth.Token) []string {
				own, _ := exchange.FromToken(token)
				return []string{own.Reveal()}
			}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFederation(t)
			f.cloud.Azure().AddFederatedCredential(azureTenant, azureOther,
				cloudtest.FederatedCredential{Issuer: f.issuer,
					Subject: role("tenant-a"), Audience: azure.DefaultAudience, Fetch: f.cloud.Client()})
			f.cloud.Azure().SetRegistry("example.azurecr.io", cloudtest.AzureRegistry{Tenant: azureTenant,
				Pull: []string{azureClient}})
			f.cloud.GCP().SetWorkloadIdentityProvider(poolOfAWS+"2",
				cloudtest.WorkloadIdentityProvider{Issuer: f.issuer, Fetch: f.cloud.Client()})
			// The other annotations of Good are those of other services.
			annotations := map[string]string{aws.RoleARNAnnotation: role("tenant-a")}
			if name == "azure" {
				annotations[azure.ClientIDAnnotation], annotations[azure.TenantIDAnnotation] = azureClient, azureTenant
			}
			if name == "gcp" {
				annotations[gcp.WorkloadIdentityProviderAnnotation] = poolOfAWS
			}
			good := outbound("tenant-a", "app", "")
			good.Annotations = maps.Clone(annotations)
			if err := f.client.Update(t.Context(), good); err != nil {
				t.Fatal(err)
			}
			authtest.RunConformance(t, authtest.Harness{
				New: func(*testing.T) auth.Provider { return tc.make(f) }, Fields: allFields(tc.make(f)), NoRegions: true,
				Options: []auth.Option{auth.WithHTTPClient(f.cloud.Client())}, Client: f.client, Source: f.source,
				Good: client.ObjectKeyFromObject(good), Other: client.ObjectKey{Namespace: "tenant-b",
					Name: "outbound"},
				Refused: client.ObjectKey{Namespace: "tenant-b",
					Name: "thief"}, Malformed: client.ObjectKey{Namespace: "tenant-a", Name: "bad"},
				Annotations: tc.different, Repository: tc.repo, Break: f.breakAll,
				Calls:   func() int { return f.cloud.Calls("", "") },
				Secrets: func(_ *testing.T, token auth.Token) []string { return tc.secrets(token) },
			})
		})
	}
}

const (
	azureOther  = "bbbbbbbb-2222-3333-4444-555555555555"
	azureDomain = "example.onmicrosoft.com"
)

func (w *environment) breakAll(t *testing.T, how provider.Reason) {
	t.Cleanup(w.cloud.AddFault(map[provider.Reason]cloudtest.Fault{
		auth.ErrThrottled:   {Status: 429, Code: "Throttling", Message: "Rate exceeded", RetryAfter: "7"},
		auth.ErrUnavailable: {Status: 503, Code: "ServiceUnavailable"},
		authtest.Hang:       {Hang: true},
	}[how]))
}

// issued is a SubjectIssuer of an issuer other than the cluster's.
type issued struct{ *cloudtest.Issuer }

func (issued) Key() string { return "issued" }

func (i issued) Subject(sa *corev1.ServiceAccount, _ *auth.Options) (auth.SubjectClaims, error) {
	return auth.SubjectClaims{Issuer: i.URL(), Subject: "spiffe://trust.example/ns/" + sa.Namespace + "/sa/" + sa.Name},
		nil
}

func (i issued) Token(_ context.Context, sa *corev1.ServiceAccount, audiences []string, opts *auth.Options,
) (jwt string, expiry time.Time, err error) {
	stated, err := i.Subject(sa, opts)
	if err != nil {
		return "", time.Time{}, err
	}
	claims := i.Claims(sa, audiences, 5*time.Minute)
	claims["iss"], claims["sub"] = stated.Issuer, stated.Subject
	delete(claims, "kubernetes.io")
	jwt, err = i.Sign(claims)
	return jwt, time.Now().Add(5 * time.Minute), err
}

// AWS takes the token of a source like the cluster's own. The remedy names what
// the role has to trust.
func TestConformanceWithASubjectIssuer(t *testing.T) {
	w := newEnvironment(t, testenv.ServiceAccount("tenant-b", "thief", aws.RoleARNAnnotation, role("tenant-a")),
		testenv.ServiceAccount("tenant-a", "bad", aws.RoleARNAnnotation, "app"))
	other, err := cloudtest.NewIssuer(cloudtest.IssuerConfig{URL: "https://trust.example"})
	if err != nil {
		t.Fatal(err)
	}
	w.cloud.AWS().AddOIDCProvider(account, other.URL(), other.HTTPClient(), aws.DefaultAudience)
	for _, tenant := range []string{"tenant-a", "tenant-b"} {
		w.cloud.AWS().SetRole(role(tenant), cloudtest.Trust{Issuer: other.URL(),
			Subjects: []string{"spiffe://trust.example/ns/" + tenant + "/sa/app"}})
	}
	source := issued{other}
	h := w.harness()
	h.Fields, h.Source = allFields(&aws.Provider{}), source
	authtest.RunConformance(t, h)
	_, err = w.get(t, "tenant-b", "thief", auth.WithSubjectIssuer(source))
	testenv.CheckError(t, err, auth.ErrDenied, `"spiffe://trust.example/ns/tenant-b/sa/thief"`,
		`the issuer "https://trust.example"`)

	// For the controller itself, the session has the controller's name.
	w.cloud.AWS().SetRole(role("controller"), cloudtest.Trust{Issuer: other.URL(),
		Subjects: []string{"spiffe://trust.example/ns/system/sa/controller"}})
	own, err := get(t, &aws.Provider{}, auth.WithSubjectIssuer(ofController{source}),
		auth.WithControllerAnnotations(map[string]string{aws.RoleARNAnnotation: role("controller")}),
		auth.WithSTSRegion("eu-central-1"), auth.WithHTTPClient(w.cloud.Client()))
	if err != nil || own.SessionName() != "workloadid" {
		t.Errorf("got %v, %v", own, err)
	}
}

// ofController is issued for the controller.
type ofController struct{ issued }

func (c ofController) Subject(_ *corev1.ServiceAccount, opts *auth.Options) (auth.SubjectClaims, error) {
	return c.issued.Subject(testenv.ServiceAccount("system", "controller"), opts)
}

func (c ofController) Token(ctx context.Context, _ *corev1.ServiceAccount, audiences []string, opts *auth.Options,
) (jwt string, expiry time.Time, err error) {
	return c.issued.Token(ctx, testenv.ServiceAccount("system", "controller"), audiences, opts)
}
