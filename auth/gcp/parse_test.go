package gcp_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

func TestServiceAccountEmails(t *testing.T) {
	for _, good := range []string{
		"app@project.iam.gserviceaccount.com",
		"app@project.example.com.iam.gserviceaccount.com",
		"app@project.s3ns.iam.gserviceaccount.com",
		"service-123@gcp-sa-x.iam.gserviceaccount.com",
		"123456789012-compute@developer.gserviceaccount.com",
		"project@appspot.gserviceaccount.com",
		"project.example.com@appspot.gserviceaccount.com",
	} {
		sa := testenv.ServiceAccount("ns", "name", gcp.ServiceAccountAnnotation, good)
		if got, err := (&gcp.Provider{}).GetIdentity(sa, &provider.Options{}); err != nil || got != good {
			t.Errorf("%q: got %q, %v", good, got, err)
		}
	}
}

// An e-mail address that is accepted changes nothing about the URL but itself.
func FuzzServiceAccountEmail(f *testing.F) {
	for _, s := range []string{"app@project.iam.gserviceaccount.com", "1-compute@developer.gserviceaccount.com",
		"p@appspot.gserviceaccount.com", "a@b@c", "a/b@c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, email string) {
		sa := testenv.ServiceAccount("ns", "name", gcp.ServiceAccountAnnotation, email)
		got, err := (&gcp.Provider{}).GetIdentity(sa, &provider.Options{})
		if err != nil {
			return
		}
		if got != email || !strings.HasSuffix(email, ".gserviceaccount.com") || strings.Count(email, "@") != 1 ||
			strings.Trim(email, "abcdefghijklmnopqrstuvwxyz0123456789-.@") != "" {
			t.Fatalf("%q is accepted", email)
		}
		u, err := url.Parse("https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/" + email + ":x")
		if err != nil || u.Path != "/v1/projects/-/serviceAccounts/"+email+":x" {
			t.Fatalf("%q does not stay in the path: %v", email, err)
		}
	})
}

// The audience of a provider that is accepted has its one form.
func FuzzWorkloadIdentityProvider(f *testing.F) {
	for _, s := range []string{poolProvider, "//iam.googleapis.com/" + poolProvider,
		"https://iam.googleapis.com/" + poolProvider, pool, poolProvider + "/", "projects/p"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		sa := testenv.ServiceAccount("ns", "name", gcp.WorkloadIdentityProviderAnnotation, name)
		audiences, err := (&gcp.Provider{}).GetAudiences(t.Context(), sa, &provider.Options{})
		if err != nil {
			return
		}
		parts := strings.Split(audiences[0], "/")
		if len(audiences) != 1 || len(parts) != 11 ||
			!strings.HasSuffix(name, strings.TrimPrefix(audiences[0], "//iam.googleapis.com/")) ||
			strings.Join([]string{parts[2], parts[3], parts[5], parts[6], parts[7], parts[9]}, " ") !=
				"iam.googleapis.com projects locations global workloadIdentityPools providers" ||
			strings.Trim(parts[4], "0123456789") != "" ||
			strings.Trim(parts[8]+parts[10], "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			t.Fatalf("%q gives the audiences %q", name, audiences)
		}
	})
}
