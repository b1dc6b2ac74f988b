package identity_test

import (
	"net/http"
	"strings"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/cloudtest"
)

func awsFaults() []fault {
	const all = "system:serviceaccount:tenant-a:*"
	sts := func(status int, code, message string) func(*environment) {
		return answer("sts", "AssumeRoleWithWebIdentity", status, code, message)
	}
	list := []fault{
		{"* under StringEquals", "aws", func(w *environment) {
			w.cloud.AWS().SetRole(roleARN, cloudtest.Trust{Issuer: w.issuer.URL(), Subjects: []string{all}})
		}, "exchange", "TrustPolicyRefusesSubject", "trust policy"},
		{"role does not exist", "aws", func(w *environment) {
			w.cloud.AWS().RemoveRole(roleARN)
		}, "exchange", "TrustPolicyRefusesSubject", "trust policy"},
		{"no OIDC provider", "aws", func(w *environment) {
			w.cloud.AWS().RemoveOIDCProvider(account, w.issuer.URL())
		}, "exchange", "IssuerNotTrusted", "no OIDC provider"},
		{"OIDC provider in another account", "aws", func(w *environment) {
			w.cloud.AWS().RemoveOIDCProvider(account, w.issuer.URL())
			w.cloud.AWS().AddOIDCProvider("210987654321", w.issuer.URL(), w.issuer.HTTPClient(), aws.DefaultAudience)
		}, "exchange", "IssuerNotTrusted", "no OIDC provider"},
		{"client ID missing", "aws", func(w *environment) {
			w.cloud.AWS().AddOIDCProvider(account, w.issuer.URL(), w.issuer.HTTPClient(), "other")
		}, "exchange", "AudienceNotTrusted", "client ID"},
		{"STS cannot get the key", "aws", func(w *environment) {
			w.cloud.AWS().AddOIDCProvider(account, w.issuer.URL(), &http.Client{Transport: broken{}}, aws.DefaultAudience)
		}, "exchange", "SigningKeyUnavailable", "cannot get the key"},
		{"required claim", "aws", sts(400, "InvalidIdentityToken", "Missing a required claim: aud"), "exchange",
			"TokenWithoutAudience", ""},
		{"STS takes it for no JWT", "aws",
			sts(400, "InvalidIdentityToken",
				"The ID Token provided is not a valid JWT. (You may see this error if you sent an Access Token)"), "exchange",
			"TokenMalformed", ""},
		{"thumbprint", "aws",
			sts(400, "InvalidIdentityToken", "OpenIDConnect provider's HTTPS certificate doesn't match configured thumbprint"),
			"exchange", "IssuerCertificateChanged", "certificate"},
		{"new general text of STS", "aws",
			sts(400, "InvalidIdentityToken", "The web identity token provided could not be validated"), "exchange",
			"SignatureNotVerified", ""},
		{"STS finds it expired", "aws",
			sts(400, "ExpiredTokenException",
				"Token expired: current date/time 1704727025 must be before the expiration date/time 1704574064"), "exchange",
			"TokenExpired", "expired"},
		{"session too long", "aws", func(w *environment) {
			w.config.Options = append(w.config.Options, aws.WithSessionDuration(2*time.Hour))
		}, "exchange", "LifetimeRefused", "longer"},
		{"region not activated", "aws",
			sts(403, "RegionDisabledException",
				"STS is not activated in this region for account:123456789012. Your account administrator can activate STS in this region using the IAM Console."), "exchange", "RegionDisabled", "region"},
		{"issuer says no", "aws", sts(403, "IDPRejectedClaim", ""), "exchange", "IssuerDidNotAnswer", "issuer"},
		{"region missing", "aws", func(w *environment) {
			w.config.Options = append(w.config.Options, auth.WithSTSRegion(""))
		}, "exchange", "TargetMalformed", "region"},
		{"ARN of an OIDC provider", "aws",
			annotate(aws.RoleARNAnnotation, "arn:aws:iam::"+account+":oidc-provider/issuer.example"), "service-account",
			"IdentityMalformed", "OIDC provider"},
		{"ARN of a session", "aws", annotate(aws.RoleARNAnnotation, "arn:aws:sts::"+account+":assumed-role/tenant-a/x"),
			"service-account", "IdentityMalformed", "session"},
		{"placeholder for the account", "aws", annotate(aws.RoleARNAnnotation, "arn:aws:iam::${ACCOUNT}:role/tenant-a"),
			"service-account", "IdentityMalformed", "12 digits"},
		{"annotation missing", "aws", annotate(aws.RoleARNAnnotation, ""), "service-account", "IdentityNotConfigured",
			"lacks the annotation"},
	}
	return list
}

func azureFaults() []fault {
	changed := func(change func(c *cloudtest.FederatedCredential)) func(w *environment) {
		return func(w *environment) { w.credential(change) }
	}
	slash := func(c *cloudtest.FederatedCredential) { c.Issuer += "/" }
	other := func(c *cloudtest.FederatedCredential) { c.Subject = "system:serviceaccount:tenant-a:other" }
	upper := func(c *cloudtest.FederatedCredential) { c.Subject = "system:serviceaccount:tenant-a:App" }
	typo := func(c *cloudtest.FederatedCredential) { c.Audience = "api://AzureADTokenCredential" }
	entra := func(status int, code, message string) func(*environment) {
		return answer("entra", "token", status, code, message)
	}
	return []fault{
		{"slash at the end of the issuer", "azure", changed(slash), "exchange", "IssuerNotTrusted", "issuer"},
		{"another subject", "azure", changed(other), "exchange", "SubjectNotTrusted", "subject"},
		{"case of the subject", "azure", changed(upper), "exchange", "SubjectCaseDiffers", "case"},
		{"another audience", "azure", changed(typo), "exchange", "AudienceNotTrusted", "audience"},
		{"no credential", "azure", func(w *environment) {
			w.federate()
		}, "exchange", "NoFederatedCredential", "no federated credential"},
		{"general text of 2022", "azure",
			entra(400, "invalid_request",
				"AADSTS70021: No matching federated identity record found for presented assertion. Assertion Issuer: 'https://x/'."), "exchange", "NoFederatedCredential", "no federated credential"},
		{"client ID unknown", "azure", annotate(azure.ClientIDAnnotation, "99999999-2222-4333-8444-555555555555"), "exchange",
			"IdentityNotFound", "does not know the client ID"},
		{"tenant unknown", "azure", annotate(azure.TenantIDAnnotation, "99999999-2222-4333-8444-555555555555"), "exchange",
			"TenantNotFound", "tenant"},
		{"Entra finds it expired", "azure",
			entra(401, "invalid_client", "AADSTS700024: Client assertion is not within its valid time range."), "exchange",
			"TokenExpired", "time"},
		{"Entra does not find the key", "azure",
			entra(401, "invalid_client",
				"AADSTS7000272: The certificate with identifier x used to sign the federated credential could not be found in the metadata of identity provider."), "exchange", "SigningKeyUnavailable", "keys"},
		{"Entra cannot reach the issuer", "azure",
			entra(400, "invalid_request", "AADSTS501661: Request to External OIDC endpoint failed."), "exchange",
			"IssuerNotPublic", "cannot read"},
		{"Entra cannot reach the issuer, older code", "azure",
			entra(400, "invalid_request", "AADSTS50166: Request to External OIDC endpoint failed."), "exchange",
			"IssuerNotPublic", "cannot read"},
		{"unknown resource", "azure", func(w *environment) {
			w.config.Options = append(w.config.Options, auth.WithScopes("https://example.azurecr.io/.default"))
		}, "exchange", "ScopeUnknown", "resource"},
		{"role of the application missing", "azure",
			entra(400, "invalid_grant", "AADSTS501051: Application 'x'(y) is not assigned to a role for the application 'z'."),
			"exchange", "RoleNotAssigned", "role"},
		{"resource ID for client ID", "azure",
			annotate(azure.ClientIDAnnotation,
				"/subscriptions/x/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/app"),
			"service-account", "IdentityMalformed", "not a GUID"},
		{"variable not replaced", "azure", annotate(azure.TenantIDAnnotation, "${TENANT}"), "service-account",
			"TargetMalformed", "neither a GUID"},
		{"annotation missing", "azure", annotate(azure.ClientIDAnnotation, ""), "service-account", "IdentityNotConfigured",
			"lacks the annotation"},
		{"tenant missing", "azure", annotate(azure.TenantIDAnnotation, ""), "service-account", "IdentityNotConfigured",
			"lacks the annotation"},
	}
}

func gcpFaults() []fault {
	pool := func(change func(p *cloudtest.WorkloadIdentityProvider)) func(w *environment) {
		return func(w *environment) { w.pool(change) }
	}
	sts := func(code, message string) func(*environment) { return answer("gcp-sts", "token", 400, code, message) }
	users := func(members ...string) func(w *environment) {
		return func(w *environment) {
			w.cloud.GCP().SetServiceAccount(gcpEmail, cloudtest.GCPServiceAccount{WorkloadIdentityUsers: members})
		}
	}
	byID := strings.Replace(principal, "projects/123456789012", "projects/my-project", 1)
	long := strings.Repeat("n", 60)
	return []fault{

		{"provider disabled", "gcp", pool(func(p *cloudtest.WorkloadIdentityProvider) {
			p.Disabled = true
		}), "exchange", "ProviderNotFound", "disabled"},
		{"provider deleted", "gcp", func(w *environment) {
			w.cloud.GCP().RemoveWorkloadIdentityProvider(poolProvider)
		}, "exchange", "ProviderNotFound", "do not exist"},
		{"STS finds the name malformed", "gcp",
			sts("invalid_request",
				`Invalid value for "audience". This value should be the full resource name of the Identity Provider.`), "exchange",
			"TargetMalformed", "malformed"},
		{"audience not allowed", "gcp", pool(func(p *cloudtest.WorkloadIdentityProvider) {
			p.AllowedAudiences = []string{"other"}
		}), "exchange", "AudienceNotTrusted", "audience"},
		{"slash at the end of the issuer", "gcp", pool(func(p *cloudtest.WorkloadIdentityProvider) {
			p.Issuer += "/"
		}), "exchange", "IssuerNotTrusted", "issuer"},
		{"uploaded keys are old", "gcp", pool(func(p *cloudtest.WorkloadIdentityProvider) {
			p.JWKS = []byte(`{"keys":[]}`)
		}), "exchange", "SigningKeyUnavailable", "no key"},
		{"STS finds the signature wrong", "gcp", sts("invalid_grant", "Unable to verify the ID Token signature."), "exchange",
			"SignatureNotVerified", "signature"},
		{"STS finds it stale", "gcp", sts("invalid_grant", "ID Token issued at 1713260741 is stale to sign-in."), "exchange",
			"TokenExpired", "too old"},
		{"condition", "gcp", pool(func(p *cloudtest.WorkloadIdentityProvider) {
			p.Condition = func(map[string]any) bool { return false }
		}), "exchange", "AttributeConditionRefuses", "condition"},
		{"subject too long", "gcp", func(w *environment) {
			w.account.Namespace, w.account.Name = long, long
			w.config.ServiceAccount.Namespace, w.config.ServiceAccount.Name = long, long
		}, "exchange", "SubjectTooLong", "too long"},
		{"no binding", "gcp", users(), "exchange", "ImpersonationDenied", "may not act"},
		{"project's ID in the binding", "gcp", users(byID), "exchange", "ImpersonationDenied", "may not act"},
		{"API disabled", "gcp", answer("iamcredentials", "", 403, "PERMISSION_DENIED",
			"IAM Service Account Credentials API has not been used in project 8667575547 before or it is disabled."), "exchange",
			"APIDisabled", "disabled"},
		{"service account missing", "gcp", func(w *environment) {
			w.cloud.GCP().RemoveServiceAccount(gcpEmail)
		}, "exchange", "IdentityNotFound", "does not exist"},
		{"lifetime", "gcp", answer("iamcredentials", "", 400, "INVALID_ARGUMENT",
			"The access tokens can not have lifetimes of more than 1 hour."), "exchange", "LifetimeRefused", "lifetime"},
		{"project's ID", "gcp", annotate(gcp.WorkloadIdentityProviderAnnotation,
			"projects/my-project/locations/global/workloadIdentityPools/east/providers/east"), "service-account",
			"TargetMalformed", "number"},
		{"a pool instead of a provider", "gcp",
			annotate(gcp.WorkloadIdentityProviderAnnotation,
				"projects/123456789012/locations/global/workloadIdentityPools/east"), "service-account", "TargetMalformed",
			"names a pool"},
		{"the pool of GKE", "gcp", annotate(gcp.WorkloadIdentityProviderAnnotation, "my-project.svc.id.goog"),
			"service-account", "TargetMalformed", "GKE"},
		{"a member instead of an e-mail address", "gcp", annotate(gcp.ServiceAccountAnnotation, "serviceAccount:"+gcpEmail),
			"service-account", "IdentityMalformed", "e-mail"},
	}
}
