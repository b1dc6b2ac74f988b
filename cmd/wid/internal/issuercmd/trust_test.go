package issuercmd

import (
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// What is printed has the right audience and subject, and no word that a shell
// would run. With --aws-role, the role is the subject. It needs no
// ServiceAccount, which would only be annotated.
func TestPrintedTrust(t *testing.T) {
	w := newEnvironment(t)
	const quoted, app = "--issuer=https://i.example/c'1", "--service-account=tenant-a/app"
	const arn, amazon = "arn:aws:iam::123456789012:role/team/a+b",
		"projects/1/locations/global/workloadIdentityPools/amazon/providers/roles"
	ofRole := []string{"--client-id=" + azureClient, "--aws-role=" + arn, "--issuer=https://i.tokens.sts.global.api.aws"}
	for name, tt := range map[string]struct {
		args []string
		want []string
	}{
		"AWS": {[]string{"aws", quoted, app, "--role=" + role("a")},
			[]string{`--url 'https://i.example/c'\''1' --client-id-list sts.amazonaws.com`,
				`"i.example/c'1:aud": "sts.amazonaws.com"`, `"i.example/c'1:sub": "` + subjectOfApp + `"`}},
		"Google": {[]string{"gcp", quoted, app, "--provider=" + gcpProvider,
			"--google-service-account=a@p.iam.gserviceaccount.com"},
			[]string{`--issuer-uri 'https://i.example/c'\''1'`, " --allowed-audiences //iam.googleapis.com/" + gcpProvider + " ",
				"--member principal://iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/east/subject/" +
					subjectOfApp,
				"kubectl annotate serviceaccount -n tenant-a app --overwrite gcp.auth.fluxcd.io/workload-identity-provider=" +
					gcpProvider}},
		"Vault": {[]string{"vault", quoted, app, "--cluster=c", "--role=r", "--policies=p", "--audience=x"},
			[]string{`oidc_discovery_url='https://i.example/c'\''1' `}},
		"Azure, a role of AWS": {append([]string{"azure"}, ofRole...),
			[]string{`"subject": "` + arn + `"`, `"issuer": "https://i.tokens.sts.global.api.aws"`,
				`"name": "aws-123456789012-a-b"`, "sts:GetWebIdentityToken", "# The controller's own role", azureClient}},
		"Azure, a role and a ServiceAccount": {append([]string{"azure", app}, ofRole...), []string{`"name": "tenant-a-app"`,
			"kubectl annotate serviceaccount -n tenant-a app --overwrite eks.amazonaws.com/role-arn=" + arn,
			"kubectl annotate serviceaccount -n tenant-a app --overwrite azure.workload.identity/client-id=" + azureClient}},
		"Google, a role of AWS": {[]string{"gcp", "--provider=" + amazon, "--aws-role=" + arn, ofRole[2],
			"--google-service-account=a@p.iam.gserviceaccount.com"},
			[]string{"--issuer-uri https://i.tokens.sts.global.api.aws ", "/workloadIdentityPools/amazon/subject/" + arn}},
	} {
		t.Run(name, func(t *testing.T) {
			script := w.must(append([]string{"trust"}, tt.args...)...)
			for _, want := range tt.want {
				if !strings.Contains(script, want) {
					t.Errorf("%q is missing in\n%s", want, script)
				}
			}
		})
	}
	var credential struct {
		Name, Issuer, Subject string
		Audiences             []string
	}
	out := w.must("trust", "azure", "--client-id="+azureClient, "-o=json", quoted, app)
	if err := json.Unmarshal([]byte(out), &credential); err != nil || credential.Issuer != "https://i.example/c'1" ||
		credential.Subject != subjectOfApp || !slices.Equal(credential.Audiences, []string{"api://AzureADTokenExchange"}) {
		t.Errorf("got %s, %v; want the credential of %s", out, err, subjectOfApp)
	}
}

// The member names the pool, so each cluster needs one of its own. In a shared
// pool, IAM takes one cluster for another.
func TestTrustOfGoogleKeepsClustersApart(t *testing.T) {
	w := newEnvironment(t)
	other, err := cloudtest.NewIssuer(cloudtest.IssuerConfig{URL: "https://cluster-2.example"})
	if err != nil {
		t.Fatal(err)
	}
	const email = "app@project.iam.gserviceaccount.com"
	example := regexp.MustCompile(`--provider (projects/\S+)`).FindStringSubmatch(newTrustGCP().Example)[1]
	var printed struct{ Member string }
	if err := json.Unmarshal([]byte(w.must("trust", "gcp", "--service-account=tenant-a/app", "--issuer="+w.issuer.URL(),
		"--provider="+example, "-o=json")), &printed); err != nil {
		t.Fatal(err)
	}
	google := w.cloud.GCP()
	google.SetServiceAccount(email, cloudtest.GCPServiceAccount{WorkloadIdentityUsers: []string{printed.Member}})
	tokenOf := func(issuer *cloudtest.Issuer, provider string) error {
		google.SetWorkloadIdentityProvider(provider,
			cloudtest.WorkloadIdentityProvider{Issuer: issuer.URL(), Fetch: issuer.HTTPClient()})
		account := testenv.ServiceAccount("tenant-a", "app", gcp.WorkloadIdentityProviderAnnotation, provider,
			gcp.ServiceAccountAnnotation, email)
		_, err := auth.GetAccessToken(t.Context(), &gcp.Provider{},
			auth.WithServiceAccount(client.ObjectKeyFromObject(account), issuer.Client(account)),
			auth.WithOwner(cache.InvolvedObject{Kind: "Bucket", Namespace: "tenant-a", Name: "b"}),
			auth.WithHTTPClient(w.cloud.Client()))
		return err
	}
	if err := tokenOf(w.issuer, example); err != nil {
		t.Fatal(err)
	}
	if err := tokenOf(other, strings.ReplaceAll(example, "cluster-1", "cluster-2")); !errors.Is(err, auth.ErrDenied) {
		t.Errorf("the second cluster acts as the tenant of the first: got %v, want %v", err, auth.ErrDenied)
	}
	shared := strings.TrimSuffix(example, "cluster-1") + "cluster-2"
	if err := tokenOf(other, shared); err != nil {
		t.Errorf("a shared pool: %v", err)
	}
	script := w.must("trust", "gcp", "--service-account=tenant-a/app", "--issuer="+other.URL(), "--provider="+shared)
	if !strings.HasPrefix(script, "# Use a pool for each cluster") {
		t.Errorf("the script warns of no shared pool:\n%s", script)
	}
}
