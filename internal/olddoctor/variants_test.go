package doctor_test

import (
	"encoding/json"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/internal/olddoctor"
)

// What is unusual and right raises no alarm either.
func TestUnusualHealthyChains(t *testing.T) {
	for _, v := range []struct {
		name, provider string
		change         func(w *world)
	}{
		{"StringLike", "aws", policy(`{"StringLike":{"ISS:sub":"system:serviceaccount:tenant-*:a?p"}}`, authtest.Trust{Subjects: []string{subject}})},
		{"ForAnyValue and IfExists", "aws", policy(`{"ForAnyValue:StringEquals":{"ISS:aud":["x","sts.amazonaws.com"]},"StringEqualsIfExists":{"ISS:sub":"`+subject+`"}}`, authtest.Trust{Subjects: []string{subject}})},
		{"no condition", "aws", policy(`{}`, authtest.Trust{Subjects: []string{subject}})},
		{"another statement first", "aws", func(w *world) {
			w.trust = `{"Role":{"AssumeRolePolicyDocument":{"Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"},` +
				`{"Effect":"Allow","Principal":{"Federated":["arn:aws:iam::123456789012:oidc-provider/issuer.example"]},"Action":["sts:AssumeRoleWithWebIdentity"],"Condition":{"StringEquals":{"issuer.example:sub":["a","` + subject + `"]}}}]}}}` +
				`{"Url":"issuer.example","ClientIDList":["x","sts.amazonaws.com"]}`
		}},
		{"other annotations", "aws", annotate("eks.amazonaws.com/sts-regional-endpoints", "true", "eks.amazonaws.com/skip-containers", "x", "meta.helm.sh/release-name", "app")},
		{"other annotations", "azure", annotate("azure.workload.identity/skip-containers", "x", "azure.workload.identity/inject-proxy-sidecar", "true")},
		{"other annotations", "gcp", annotate("iam.gke.io/return-principal-id-as-email", "true", "iam.gke.io/credential-quota-project", "x")},
		{"annotations of all clouds", "aws", annotate("azure.workload.identity/client-id", azureClient, "iam.gke.io/gcp-service-account", gcpEmail)},
		{"direct access", "gcp", func(w *world) { delete(w.account.Annotations, "iam.gke.io/gcp-service-account") }},
		{"keys being rotated", "aws", func(w *world) {
			if err := w.own().Rotate(true); err != nil {
				w.t.Fatal(err)
			}
		}},
		{"uploaded keys of a private issuer", "gcp", func(w *world) {
			w.config.IssuerClient = &http.Client{Transport: broken{}}
			keys := published(w)
			w.config.JWKS = keys
			w.pool(func(p *authtest.WorkloadIdentityProvider) { p.JWKS, p.Fetch = keys, nil })
		}},
		{"condition", "gcp", func(w *world) {
			w.trust = gcpTrust(w.issuer.URL(), `,"attributeCondition":"assertion.sub.startsWith('system:serviceaccount:tenant-a:')"`, principal)
		}},
		{"everybody of the pool", "gcp", func(w *world) {
			const everybody = "principalSet://iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/clusters/*"
			w.cloud.GCP().SetServiceAccount(gcpEmail, authtest.GCPServiceAccount{WorkloadIdentityUsers: []string{everybody}})
			w.trust = gcpTrust(w.issuer.URL(), "", everybody)
		}},
		{"several credentials", "azure", func(w *world) {
			w.cloud.Azure().AddFederatedCredential(azureTenant, azureClient, authtest.FederatedCredential{Issuer: "https://other.example/", Subject: subject, Audience: "x", Fetch: w.issuer.HTTPClient()})
		}},
		{"a line break after the token", "aws", func(w *world) { w.write(w.sign(nil) + "\n") }},
		{"pod", "aws", withPod(func(*world, *corev1.Pod) {})},
		{"pod", "azure", withPod(func(*world, *corev1.Pod) {})},
		{"pod", "gcp", withPod(func(*world, *corev1.Pod) {})},
		{"in the pod", "aws", inPod(func(*world) {})},
		{"in the pod", "azure", inPod(func(*world) {})},
		{"sidecar", "aws", helper(http.StatusOK, "application/json", `{"AccessKeyId":"a","SecretAccessKey":"b","Token":"c","Expiration":"2099-01-01T00:00:00Z"}`)},
	} {
		t.Run(v.provider+"/"+v.name, func(t *testing.T) {
			w := newWorld(t, v.provider)
			v.change(w)
			report := w.run()
			for _, f := range report.Findings {
				if f.Result == doctor.Fail || f.Result == doctor.Warn {
					t.Errorf("false alarm: %+v", f)
				}
			}
			if report.Of("exchange").Result != doctor.Pass {
				t.Errorf("%s", report)
			}
		})
	}
}

// published are the issuer's keys as it publishes them.
func published(w *world) []byte {
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.issuer.URL()+"/openid/v1/jwks", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	resp, err := w.issuer.HTTPClient().Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	var keys json.RawMessage
	if err := json.NewDecoder(resp.Body).Decode(&keys); err != nil {
		w.t.Fatal(err)
	}
	return keys
}

// A network that cannot see the issuer is no reason to blame it, if the cloud has judged the token.
func TestIssuerThatOnlyTheCloudSees(t *testing.T) {
	w := newWorld(t, "aws")
	w.config.IssuerClient = &http.Client{Transport: broken{}}
	report := w.run()
	if f := report.Of("discovery"); f.Result != doctor.Warn || report.ExitCode() != doctor.ExitUncertain {
		t.Errorf("%+v", f)
	}
	w = newWorld(t, "aws")
	w.config.IssuerClient = &http.Client{Transport: broken{}}
	w.cloud.AWS().RemoveRole(roleARN)
	if f := w.run().Worst(); f.ID != "exchange" || f.Class != "A1" {
		t.Errorf("%+v", f)
	}
}
