package main

import (
	"strings"
	"testing"
)

// With --aws-role, the role is the subject. It needs no ServiceAccount, which would only be annotated.
func TestIssuerTrustOfAnAWSRole(t *testing.T) {
	w := newWorld(t)
	const role, provider = "arn:aws:iam::123456789012:role/team/a+b", "projects/1/locations/global/workloadIdentityPools/amazon/providers/roles"
	azure := []string{"issuer", "trust", "azure", "--client-id=" + azureClient, "--aws-role=" + role,
		"--issuer=https://i.tokens.sts.global.api.aws"}
	gcp := []string{"issuer", "trust", "gcp", "--provider=" + provider, "--aws-role=" + role,
		"--issuer=https://i.tokens.sts.global.api.aws"}
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{azure, []string{`"subject": "` + role + `"`, `"issuer": "https://i.tokens.sts.global.api.aws"`,
			`"name": "aws-123456789012-a-b"`,
			"sts:GetWebIdentityToken", "# The controller's own role", azureClient}},
		{append(azure, "--service-account=tenant-a/app"), []string{`"name": "tenant-a-app"`,
			"kubectl annotate serviceaccount -n tenant-a app --overwrite eks.amazonaws.com/role-arn=" + role,
			"kubectl annotate serviceaccount -n tenant-a app --overwrite azure.workload.identity/client-id=" + azureClient}},
		{append(gcp, "--google-service-account=a@p.iam.gserviceaccount.com"),
			[]string{"--issuer-uri https://i.tokens.sts.global.api.aws ",
				"/workloadIdentityPools/amazon/subject/" + role}},
	} {
		script := w.mustWid(t, "", tt.args...)
		for _, want := range tt.want {
			if !strings.Contains(script, want) {
				t.Errorf("%q is missing in\n%s", want, script)
			}
		}
	}
}
