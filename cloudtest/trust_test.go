package cloudtest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// Reading the trust of a cloud requires a valid credential.
func TestTrustNeedsLogin(t *testing.T) {
	cloud := testenv.Cloud(t)
	const pool = "projects/1/locations/global/workloadIdentityPools/east"
	cloud.AWS().SetRole("arn:aws:iam::123456789012:role/a", cloudtest.Trust{Subjects: []string{"secret"}})
	cloud.AWS().SetEKSCluster(cloudtest.EKSCluster{ARN: "arn:aws:eks:eu-central-1:123456789012:cluster/prod"})
	cloud.GCP().SetWorkloadIdentityProvider(pool+"/providers/east", cloudtest.WorkloadIdentityProvider{Issuer: "secret"})
	cloud.GCP().SetServiceAccount("a@b.iam.gserviceaccount.com",
		cloudtest.GCPServiceAccount{WorkloadIdentityUsers: []string{"secret"}})
	cloud.GCP().SetIAMViewers("allUsers")
	for _, tc := range []struct{ method, address, body string }{
		{http.MethodPost, "https://iam.amazonaws.com/", "Action=GetRole&Version=2010-05-08&RoleName=a"},
		{http.MethodPost, "https://iam.amazonaws.com/", "Action=ListOpenIDConnectProviders&Version=2010-05-08"},
		{http.MethodGet,
			"https://eks.eu-central-1.amazonaws.com/clusters/prod/access-entries/arn%3Aaws%3Aiam%3A%3A123456789012%3Arole%2Fa",
			""},
		{http.MethodGet, "https://eks.eu-central-1.amazonaws.com/clusters/prod/access-entries/a/access-policies", ""},
		{http.MethodPost, "https://eks.eu-central-1.amazonaws.com/clusters/prod/access-entries", "{}"},
		{http.MethodDelete, "https://eks.eu-central-1.amazonaws.com/clusters/prod/access-entries/a", ""},
		{http.MethodPost, "https://iam.amazonaws.com/", "Action=UpdateAssumeRolePolicy&Version=2010-05-08&RoleName=a"},
		{http.MethodGet, "https://iam.googleapis.com/v1/" + pool, ""},
		{http.MethodGet, "https://iam.googleapis.com/v1/" + pool + "/providers/east", ""},
		{http.MethodPost, "https://iam.googleapis.com/v1/projects/-/serviceAccounts/a@b.iam.gserviceaccount.com:getIamPolicy",
			""},
		{http.MethodPost, "https://oauth2.googleapis.com/tokeninfo", "access_token=x"},
		{http.MethodPost, "https://oauth2.googleapis.com/token", "grant_type=refresh_token&refresh_token=x"},
	} {
		for _, authorization := range []string{"", "Bearer made-up",
			"AWS4-HMAC-SHA256 Credential=AKIA/20260101/us-east-1/iam/aws4_request, SignedHeaders=host, Signature=00"} {
			status, body, _ := send(t, cloud, tc.method, tc.address, tc.body, "Authorization", authorization)
			if status < 400 || status > 403 || strings.Contains(body, "secret") {
				t.Errorf("%s %s with %.20q: %d %s", tc.method, tc.address, authorization, status, body)
			}
		}
	}
}
