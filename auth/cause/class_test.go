package cause_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/cause"
	"github.com/workloadid/workloadid/auth/provider"
)

// The texts are those of the services.
func TestClasses(t *testing.T) {
	seen := map[cause.Reason]bool{}
	for _, tc := range []struct {
		id, provider string
		status       int
		code, text   string
		cause        provider.Cause
	}{
		{"TrustPolicyRefusesSubject", "aws", 403, "AccessDenied",
			"Not authorized to perform sts:AssumeRoleWithWebIdentity", ""},
		{"IssuerNotTrusted", "aws", 400, "InvalidIdentityToken",
			"No OpenIDConnect provider found in your account for https://x", ""},
		{"SigningKeyUnavailable", "aws", 400, "InvalidIdentityToken",
			"Couldn't retrieve verification key from your identity provider,  please reference AssumeRoleWithWebIdentity documentation for requirements", ""},
		{"AudienceNotTrusted", "aws", 400, "InvalidIdentityToken", "Incorrect token audience", ""},
		{"TokenWithoutAudience", "aws", 400, "InvalidIdentityToken", "Missing a required claim: aud", ""},
		{"TokenMalformed", "aws", 400, "InvalidIdentityToken", "The ID Token provided is not a valid JWT.", ""},
		{"IssuerCertificateChanged", "aws", 400, "InvalidIdentityToken",
			"OpenIDConnect provider's HTTPS certificate doesn't match configured thumbprint", ""},
		{"SignatureNotVerified", "aws", 400, "InvalidIdentityToken", "words that are new", ""},
		{"TokenExpired", "aws", 400, "ExpiredTokenException",
			"Token expired: current date/time 1 must be before the expiration date/time0", ""},
		{"IdentityMalformed", "aws", 0, "", `the annotation "eks.amazonaws.com/role-arn" is not the ARN of a role: x`,
			provider.CauseIdentityMalformed},
		{"LifetimeRefused", "aws", 400, "ValidationError",
			"The requested DurationSeconds exceeds the MaxSessionDuration set for this role.", ""},
		{"RegionDisabled", "aws", 403, "RegionDisabledException", "STS is not activated in this region", ""},
		{"IssuerDidNotAnswer", "aws", 400, "IDPCommunicationError", "", ""},
		{"IdentityNotConfigured", "aws", 0, "", `the annotation "eks.amazonaws.com/role-arn" is missing`,
			provider.CauseIdentityMissing},
		{"RegistryDenied", "aws", 400, "AccessDeniedException",
			"User: x is not authorized to perform: ecr:GetAuthorizationToken on resource: *", ""},
		{"ClusterNotFound", "aws", 404, "ResourceNotFoundException", "No cluster found for name: x.", ""},
		{"RequestSignatureRefused", "aws", 403, "SignatureDoesNotMatch",
			"The request signature we calculated does not match", ""},
		{"RequestSignatureRefused", "aws", 403, "",
			"Signature expired: 20260803T101500Z is now earlier than 20260803T104500Z", ""},
		{"NoFederatedCredential", "azure", 401, "AADSTS70021", "No matching federated identity record found", ""},
		{"IssuerNotTrusted", "azure", 401, "AADSTS700211", "", ""},
		{"AudienceNotTrusted", "azure", 401, "AADSTS700212", "", ""},
		{"SubjectNotTrusted", "azure", 401, "AADSTS700213", "", ""},
		{"SubjectCaseDiffers", "azure", 401, "AADSTS7002138", "", ""},
		{"NoFederatedCredential", "azure", 401, "AADSTS70025", "", ""},
		{"IdentityNotFound", "azure", 400, "AADSTS700016", "", ""},
		{"TenantNotFound", "azure", 400, "AADSTS90002", "", ""}, {"TargetMalformed", "azure", 400, "AADSTS900023", "", ""},
		{"TokenExpired", "azure", 401, "AADSTS700024", "", ""},
		{"SigningKeyUnavailable", "azure", 401, "AADSTS7000272", "", ""},
		{"IssuerNotPublic", "azure", 400, "AADSTS90061", "", ""}, {"ScopeUnknown", "azure", 400, "AADSTS500011", "", ""},
		{"RoleNotAssigned", "azure", 400, "AADSTS501051", "", ""},
		{"IdentityNotConfigured", "azure", 400, "invalid_request", "Identity not found", ""},
		{"RegistryDenied", "azure", 401, "UNAUTHORIZED",
			"authentication required, visit https://aka.ms/acr/authorization for more information.", ""},
		{"ClusterDenied", "azure", 403, "AuthorizationFailed", "The client 'x' does not have authorization to perform action",
			""},
		{"ProviderNotFound", "gcp", 400, "invalid_target", "", ""},
		{"TargetMalformed", "gcp", 400, "invalid_request",
			`Invalid value for "audience". This value should be the full resource name of the Identity Provider.`, ""},
		{"AudienceNotTrusted", "gcp", 400, "invalid_grant",
			"The audience in ID Token [x] does not match the expected audience.", ""},
		{"IssuerNotTrusted", "gcp", 400, "invalid_grant",
			"The issuer in ID Token https://a does not match the expected ones: https://b/", ""},
		{"SigningKeyUnavailable", "gcp", 400, "invalid_grant", "Error connecting to the given credential's issuer.", ""},
		{"SignatureNotVerified", "gcp", 400, "invalid_grant", "Unable to verify the ID Token signature.", ""},
		{"TokenExpired", "gcp", 400, "invalid_grant", "ID Token issued at null is stale to sign-in.", ""},
		{"AttributeConditionRefuses", "gcp", 400, "unauthorized_client",
			"The given credential is rejected by the attribute condition.", ""},
		{"SubjectTooLong", "gcp", 400, "invalid_request", "The size of mapped attribute exceeds the 127 bytes limit.", ""},
		{"ImpersonationDenied", "gcp", 403, "PERMISSION_DENIED",
			"Permission 'iam.serviceAccounts.getAccessToken' denied on resource (or it may not exist).", ""},
		{"APIDisabled", "gcp", 403, "PERMISSION_DENIED",
			"IAM Service Account Credentials API has not been used in project 1 before or it is disabled.", ""},
		{"IdentityNotFound", "gcp", 404, "NOT_FOUND", "Not found; Gaia id not found for email x", ""},
		{"LifetimeRefused", "gcp", 400, "INVALID_ARGUMENT", "The access tokens can not have lifetimes of more than 1 hour.",
			""},
		{"ImpersonationDenied", "gcp", 403, "",
			"Unable to generate access token; IAM returned 403 Forbidden: The caller does not have permission", ""},
		{"MetadataServerSilent", "gcp", 0, "", "the metadata server cannot be reached", provider.CauseMetadataServer},
		{"RegistryDenied", "gcp", 403, "DENIED",
			`Permission "artifactregistry.repositories.downloadArtifacts" denied on resource "r" (or it may not exist)`, ""},
		{"ClusterDenied", "gcp", 403, "PERMISSION_DENIED", `Required "container.clusters.get" permission(s) for "c".`, ""},
		{"RightMissing", "aws", 403, "Forbidden",
			`serviceaccounts "x" is forbidden: User "u" cannot create resource "serviceaccounts/token" in API group ""`,
			provider.CauseTokenRequestForbidden},
		{"ServiceAccountNotFound", "gcp", 404, "NotFound", `serviceaccounts "x" not found`,
			provider.CauseServiceAccountNotFound},
		{"LifetimeRefused", "azure", 422, "Invalid",
			"spec.expirationSeconds: Invalid value: 60: may not specify a duration less than 10 minutes", ""},
		{"AudienceDeniedToNode", "aws", 403, "Forbidden",
			`audience "X" not found in pod spec volume, system:node:N is not authorized`, ""},
		{"AudienceOfAnotherService", "aws", 0, "",
			`the subject token is good for the API server (audience "a"), so it is not sent out`,
			provider.CauseAPIServerAudience},
		{"TokenFileUnreadable", "aws", 0, "", "open x: permission denied", provider.CauseTokenFileForbidden},
		{"LoginRefused", "generic", 401, "Unauthorized", "Unauthorized", ""},
		{"FeatureGateOff", "aws", 0, "", "the controller does not let objects name ServiceAccounts", "FeatureGateOff"},
		{"TargetMalformed", "aws", 0, "", "", provider.CauseTargetMalformed},
		{"TargetMalformed", "azure", 0, "", "", provider.CauseTargetMalformed},
		{"TargetMalformed", "gcp", 0, "", "", provider.CauseTargetMalformed},
		{"IdentityMalformed", "azure", 0, "", "", provider.CauseIdentityMalformed},
		{"IdentityMalformed", "gcp", 0, "", "", provider.CauseIdentityMalformed},
		{"IdentityNotConfigured", "azure", 0, "", "", provider.CauseIdentityMissing},
		{"TokenExpired", "aws", 0, "", "", provider.CauseTokenExpired},
		{"TokenExpired", "azure", 0, "", "", provider.CauseTokenExpired},
		{"TokenExpired", "gcp", 0, "", "", provider.CauseTokenExpired},
		// no service has said that
		{"", "aws", 0, "", `the annotation "eks.amazonaws.com/role-arn" is missing: sts:AssumeRoleWithWebIdentity`, ""},
		{"", "aws", 503, "", "it is down", ""}, {"", "aws", 400, "InvalidAction", "", ""},
		{"", "gcp", 500, "INTERNAL", "Internal error encountered.", ""},
	} {
		e := &auth.Error{Provider: tc.provider, StatusCode: tc.status, Code: tc.code, Message: tc.text, Cause: tc.cause}
		if slices.Contains([]string{"Forbidden", "NotFound", "Invalid", "Unauthorized"}, tc.code) {
			e.Err = fromAPIServer(tc.status)
		}
		before := e.Error()
		c := cause.ClassOf(fmt.Errorf("wrapped: %w", e))
		seen[c.Reason] = true
		if string(c.Reason) != tc.id {
			t.Errorf("%s %d %s %q is %+v, not %s", tc.provider, tc.status, tc.code, tc.text, c, tc.id)
		}
		if c.Reason != "" && (c.Service == "" || c.Summary == "" || len(c.Causes) == 0 || c.Remedy == "") {
			t.Errorf("the class lacks a part: %+v", c)
		}
		if strings.Contains(c.Remedy, "<") {
			t.Errorf("%s: a shell takes that for a redirection: %s", c.Reason, c.Remedy)
		}
		if e.Error() != before {
			t.Errorf("the text has changed: %q", e.Error())
		}
	}
	// A registry, a cluster, a review or two documents show the others.
	if len(seen) != 41 {
		t.Errorf("%d classes were seen: %v", len(seen)-1, seen)
	}
}

// The remedy is that of the error itself, if it has one: it names the object. A
// class with a grant keeps its own, as the error's may grant.
func TestClassRemedy(t *testing.T) {
	e := &auth.Error{Provider: "azure", Code: "AADSTS700016", StatusCode: 400, Remedy: "use the client ID"}
	if c := cause.ClassOf(e); c.Remedy != e.Remedy || c.Grant != "" {
		t.Errorf("got %+v, want the error's own remedy and no grant", c)
	}
	// STS gives the same answer for a role that does not exist.
	e = &auth.Error{Provider: "aws", Code: "AccessDenied", StatusCode: 403, Message: "sts:AssumeRoleWithWebIdentity",
		Remedy: "let the role trust it"}
	if c := cause.ClassOf(e); !strings.Contains(c.Grant, "aws iam update-assume-role-policy") ||
		strings.Contains(c.Remedy, "trust") || !strings.Contains(c.Causes[0], "StringEquals") ||
		c.Causes[1] != "the role does not exist" {
		t.Errorf("got %+v, want the grant and the causes of the class", c)
	}
	if c := cause.ClassOf(errors.New("else")); c.Reason != "" {
		t.Errorf("another error has the class %+v", c)
	}
	if c := cause.ClassOf(nil); c.Reason != "" {
		t.Errorf("no error has the class %+v", c)
	}
}

// The operation alone suggests the errors' remedies here. The answer says more.
func TestRemedyOfTheClassBeatsThatOfTheOperation(t *testing.T) {
	const grant = "grant roles/iam.workloadIdentityUser"
	for want, e := range map[string]auth.Error{
		"gcloud services enable iamcredentials.googleapis.com --project PROJECT_ID": {Provider: "gcp", StatusCode: 403,
			Message: "API has not been used in project 1"},
		"list the audience in a projected volume of the pod": {Provider: "aws", StatusCode: 403,
			Message: `audience "x" not found in pod spec volume`, Err: fromAPIServer(403)},
		"correct account, region and name in the cluster's ARN": {Provider: "aws", StatusCode: 404,
			Code: "ResourceNotFoundException"},
	} {
		e.Remedy = grant
		if c := cause.ClassOf(&e); c.Remedy != want || c.Grant == grant {
			t.Errorf("got %+v, want the remedy %q", c, want)
		}
	}
}

func fromAPIServer(status int) error {
	return fmt.Errorf("wrapped: %w",
		&apierrors.StatusError{ErrStatus: metav1.Status{Code: int32(status)}}) //nolint:gosec // an HTTP status
}

// Another service's error with the codes and words of Kubernetes is not
// explained as the API server's.
func TestClassesOfTheAPIServerOnly(t *testing.T) {
	for id, e := range map[string]auth.Error{
		"LifetimeRefused":      {StatusCode: 422, Code: "Invalid", Message: "expirationSeconds: too short"},
		"AudienceDeniedToNode": {StatusCode: 403, Message: "audience not found in pod spec volume"},
		"LoginRefused":         {StatusCode: 401, Code: "Unauthorized"},
	} {
		t.Run(id, func(t *testing.T) {
			e.Provider, e.Err = "oauth", errors.New("answer of an OAuth server")
			if c := cause.ClassOf(&e); c.Reason != "" {
				t.Errorf("another service: %+v", c)
			}
			e.Err = fromAPIServer(e.StatusCode)
			if c := cause.ClassOf(&e); string(c.Reason) != id {
				t.Errorf("the API server: %+v", c)
			}
		})
	}
}
