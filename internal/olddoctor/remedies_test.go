package doctor_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/internal/olddoctor"
)

// distrusting is a client that knows no certificate authority of the other's.
func distrusting(t *testing.T, c *http.Client) *http.Client {
	t.Helper()
	own, ok := c.Transport.(*http.Transport)
	if !ok {
		t.Fatalf("%T", c.Transport)
	}
	own = own.Clone()
	own.TLSClientConfig.RootCAs = nil
	t.Cleanup(own.CloseIdleConnections)
	return &http.Client{Transport: own}
}

// A machine that believes nobody's certificate, as behind a proxy that shows its own, judges no issuer by what it was shown, and
// nobody is told to register that.
func TestCertificatesThatAreNotTrusted(t *testing.T) {
	t.Parallel()
	for _, provider := range []string{"aws", "azure", "gcp"} {
		w := newWorld(t, provider)
		w.config.IssuerClient = distrusting(t, w.stranger())
		w.config.Options = []auth.Option{auth.WithHTTPClient(distrusting(t, w.cloud.Client())), auth.WithSTSRegion("eu-central-1")}
		report := w.run()
		for _, id := range []string{"discovery", "issuer-tls", "exchange"} {
			if f := report.Of(id); f.Result != doctor.Unknown || !strings.Contains(f.Remedy, "SSL_CERT_FILE") {
				t.Errorf("%s: %+v", provider, f)
			}
		}
		if f := report.Worst(); f.ID != "exchange" || f.Class != "N5" || report.Of("keys").Result == doctor.Pass || strings.Contains(report.String(), "thumbprint") {
			t.Errorf("%s: %s", provider, report)
		}
		// Where the cloud is believed, the issuer has a private authority, or a proxy shows its own for the issuer alone.
		w = newWorld(t, provider)
		w.config.IssuerClient, w.config.Skip, w.config.ShowPolicy = distrusting(t, w.stranger()), []string{"exchange"}, true
		report = w.run()
		f := report.Of("issuer-tls")
		if f.Result == doctor.Pass || f.Result == doctor.Unknown || !strings.Contains(report.Of("keys").Message, "not verified") {
			t.Errorf("%s: %s", provider, report)
		}
		for _, field := range f.Fields {
			if field.Name == "thumbprint" && strings.Contains(f.Remedy, field.Observed) || provider == "aws" && !strings.Contains(f.Remedy, "OLD_THUMBPRINT") {
				t.Errorf("%+v", f)
			}
		}
	}
}

// az takes issuer, subject and audiences together, whichever of them differs.
func TestAzureUpdatesAreWhole(t *testing.T) {
	const rest = " --identity-name IDENTITY_NAME --resource-group RESOURCE_GROUP --issuer https://issuer.example --subject " + subject +
		" --audiences api://AzureADTokenExchange"
	for name, a := range map[string]doctor.Anchor{
		"slash":          {Name: "f1", Issuer: "https://issuer.example/", Subject: subject, Audiences: []string{"api://AzureADTokenExchange"}},
		"case":           {Name: "f1", Issuer: "https://issuer.example", Subject: strings.Replace(subject, "tenant-a", "Tenant-A", 1), Audiences: []string{"api://AzureADTokenExchange"}},
		"audience":       {Name: "f1", Issuer: "https://issuer.example", Subject: subject, Audiences: []string{"other"}},
		"both at once":   {Name: "f1", Issuer: "https://issuer.example/", Subject: strings.ToUpper(subject), Audiences: []string{"other"}},
		"a nameless one": {Issuer: "https://issuer.example", Subject: subject, Audiences: []string{"other"}},
	} {
		f := anchored(t, "azure", &doctor.Trust{Anchors: []doctor.Anchor{a}}, nil).Of("trust-anchor")
		want := "az identity federated-credential update --name f1" + rest
		if a.Name == "" {
			want = strings.Replace(want, "f1", "CREDENTIAL_NAME", 1)
		}
		if f.Result != doctor.Fail || trustChange(f) != want {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// What a condition rejects is marked by its own name.
func TestRejectedClaims(t *testing.T) {
	for condition, want := range map[string][]string{
		`assertion['kubernetes.io']['namespace'] == 'other'`:                                {`assertion["kubernetes.io"]["namespace"]: tenant-a`},
		`assertion.sub == '` + subject + `' && assertion['kubernetes.io'].namespace == 'x'`: {`assertion["kubernetes.io"].namespace: tenant-a`},
		`assertion.sub.startsWith('x') || 'other' in assertion.aud`:                         {"assertion.sub: " + subject, `assertion.aud: ["//iam.googleapis.com/` + poolProvider + `"]`},
		`google.subject == 'x'`:  {"google.subject: " + subject},
		`has(assertion.missing)`: {"assertion.missing: none"},
		`false`:                  {"attribute condition: false"},
	} {
		trust := &doctor.Trust{Anchors: []doctor.Anchor{{Name: poolProvider, Issuer: "https://issuer.example",
			SubjectMapping: "assertion.sub", Condition: condition}}, Members: []string{principal}}
		f := anchored(t, "gcp", trust, nil).Of("trust-anchor")
		var got []string
		for _, field := range f.Fields {
			if field.Differs {
				got = append(got, field.Name+": "+field.Observed)
			}
		}
		if f.Class != "G8" || strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s: got %q, want %q: %+v", condition, got, want, f)
		}
	}
}

// What is wrong with an endpoint that refuses is that it does, not how it words that.
func TestRefusalsOfHelpers(t *testing.T) {
	for status, contentType := range map[int]string{http.StatusUnauthorized: "text/plain", http.StatusForbidden: "application/json", http.StatusNotFound: "text/html"} {
		w := newWorld(t, "aws")
		helper(status, contentType, "no")(w)
		f := w.run().Of("helpers")
		got := fmt.Sprint(f.Fields)
		want := fmt.Sprint([]doctor.Field{{Name: "status", Observed: strconv.Itoa(status), Expected: "200", Differs: true}, {Name: "Content-Type", Observed: contentType}})
		if f.Result != doctor.Fail || f.StatusCode != status || got != want {
			t.Errorf("%s instead of %s: %+v", got, want, f)
		}
	}
}

// Remedies name what is known already.
func TestRemediesAreFilledIn(t *testing.T) {
	for name, tt := range map[string]struct {
		provider, check, remedy string
		spoil                   func(w *world)
	}{
		"what AWS trusts": {"aws", "trust-anchor", "(aws iam get-role --role-name tenant-a; aws iam get-open-id-connect-provider --open-id-connect-provider-arn arn:aws:iam::" +
			account + ":oidc-provider/issuer.example) > trust.json", func(w *world) { w.config.Skip = []string{"exchange"} }},
		"what Google Cloud trusts": {"gcp", "trust-anchor", "(gcloud iam workload-identity-pools providers describe " + poolProvider +
			" --format json; gcloud iam service-accounts get-iam-policy " + gcpEmail + " --format json) > trust.json", func(w *world) { w.config.Skip = []string{"exchange"} }},
		"no member": {"gcp", "exchange", "gcloud iam service-accounts add-iam-policy-binding " + gcpEmail + " --role roles/iam.workloadIdentityUser --member " + principal,
			func(w *world) { w.cloud.GCP().SetServiceAccount(gcpEmail, authtest.GCPServiceAccount{}) }},
		"no credential": {"azure", "exchange", "--issuer https://issuer.example --subject " + subject + " --audiences api://AzureADTokenExchange",
			func(w *world) { w.federate() }},
		"no pull": {"azure", "registry", "--assignee " + azureClient + " --scope REGISTRY_ID", func(w *world) {
			w.cloud.Azure().SetRegistry(acrHost, authtest.AzureRegistry{Tenant: azureTenant, Handler: emptyRegistry()})
			w.config.Repository = acrHost + "/app"
		}},
		"no pull from Google Cloud": {"gcp", "registry", "add-iam-policy-binding repo --location europe --project my-project --role roles/artifactregistry.reader --member serviceAccount:" + gcpEmail, func(w *world) {
			w.cloud.GCP().SetRegistryHandler(denyingRegistry(http.StatusForbidden, `{}`))
			w.config.Repository = garHost + "/my-project/repo/app"
		}},
		"no access entry": {"aws", "cluster", "--cluster-name prod --principal-arn " + roleARN, func(w *world) { w.eks(http.StatusUnauthorized) }},
		"no review": {"aws", "token-review", "--clusterrole=system:auth-delegator --serviceaccount=system:controller",
			func(w *world) { w.user.mayNot = []string{"tokenreviews"} }},
	} {
		w := newWorld(t, tt.provider)
		w.config.ShowPolicy = true
		tt.spoil(w)
		if f := w.run().Of(tt.check); !strings.Contains(f.Remedy, tt.remedy) {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// A document that is not there is not one that strangers may not read.
func TestMissingDocuments(t *testing.T) {
	w := newWorld(t, "aws")
	issuer := w.serve
	w.serve = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/jwks") {
			http.NotFound(rw, r)
			return
		}
		issuer.ServeHTTP(rw, r)
	})
	w.config.Skip = []string{"exchange"}
	if f := w.run().Of("keys"); f.Result != doctor.Fail || strings.Contains(f.Remedy, "clusterrolebinding") || !strings.Contains(f.Remedy, "kubectl get --raw /openid/v1/jwks") {
		t.Errorf("%+v", f)
	}
	w = newWorld(t, "aws")
	serve(http.StatusNotFound, "")(w)
	w.config.Skip = []string{"exchange"}
	if f := w.run().Of("discovery"); f.Result != doctor.Fail || strings.Contains(f.Remedy, "clusterrolebinding") || !strings.Contains(f.Remedy, "openid-configuration") {
		t.Errorf("%+v", f)
	}
}

// Outside of GKE the missing annotation is what is wrong, not the metadata server. Without a service account there is no policy to
// look at.
func TestGoogleWithoutAnnotations(t *testing.T) {
	w := newWorld(t, "gcp")
	delete(w.account.Annotations, gcp.WorkloadIdentityProviderAnnotation)
	f := w.run().Worst()
	if f.ID != "identifiers" || !strings.Contains(f.Message, "the annotation "+gcp.WorkloadIdentityProviderAnnotation+" is missing") {
		t.Errorf("%+v", f)
	}
	w = newWorld(t, "gcp")
	delete(w.account.Annotations, gcp.ServiceAccountAnnotation)
	w.config.Skip = []string{"exchange"}
	if f := w.run().Of("trust-rule"); f.Result != doctor.Skip {
		t.Errorf("%+v", f)
	}
}
