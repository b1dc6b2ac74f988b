package redact_test

import (
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/redact"
)

// messages are of the kind that people need in order to know what to mend:
// nothing in them is secret.
var messages = []string{
	// AWS
	"Not authorized to perform sts:AssumeRoleWithWebIdentity",
	"User: arn:aws:sts::123456789012:assumed-role/tenant-a/workloadid-7d1f5a6b0c00 is not authorized to perform: sts:AssumeRole on resource: arn:aws:iam::210987654321:role/path/to/a-rather-long-role-name-of-64-characters-in-another-account with an explicit deny in a service control policy: arn:aws:organizations::123456789012:policy/o-a1b2c3d4e5/service_control_policy/p-0123456789",
	"No OpenIDConnect provider found in your account for https://oidc.eks.eu-central-1.amazonaws.com/id/0123456789ABCDEF0123456789ABCDEF",
	"Couldn't retrieve verification key from your identity provider,  please reference AssumeRoleWithWebIdentity documentation for requirements",
	"Token must be redeemed within 24 hours of issuance. Token expired: current date/time 1718000000 must be before the expiration date/time 1717996400",
	"Incorrect token audience",
	"OpenIDConnect provider's HTTPS certificate doesn't match configured thumbprint 9e99a48a9960b14926bb7f3b02e22da2b0ab7280",
	"The requested DurationSeconds exceeds the MaxSessionDuration set for this role.",
	"operation error STS: AssumeRoleWithWebIdentity, https response error StatusCode: 403, RequestID: 4b9e8f1c-2d3a-4e5f-8a6b-7c8d9e0f1a2b, api error AccessDenied: Not authorized to perform sts:AssumeRoleWithWebIdentity",
	"User: arn:aws:sts::123456789012:assumed-role/tenant-a/s is not authorized to perform: ecr:GetAuthorizationToken on resource: * because no identity-based policy allows the ecr:GetAuthorizationToken action",
	"Encoded authorization failure: request 01234567-89ab-cdef-0123-456789abcdef (Service: AmazonEKS; Status Code: 400; Error Code: ResourceNotFoundException; Proxy: null): No cluster found for name: production.",
	"Rate exceeded (Service: Sts; x-amzn-RequestId: a1b2c3d4-e5f6-4711-8899-aabbccddeeff; x-amz-id-2: none)",
	"Signature expired: 20240611T071500Z is now earlier than 20240611T071536Z (20240611T073036Z - 15 min.)",
	// Azure
	"AADSTS70021: No matching federated identity record found for presented assertion. Assertion Issuer: 'https://oidc.prod-aks.azure.com/11111111-2222-4333-8444-555555555555/'. Assertion Subject: 'system:serviceaccount:tenant-a:app'. Assertion Audience: 'api://AzureADTokenExchange'. Trace ID: 6b1f3c6e-1a2b-4c3d-8e4f-7d1f5a6b0c00 Correlation ID: 6b1f3c6e-1a2b-4c3d-8e4f-7d1f5a6b0c01 Timestamp: 2024-06-11 07:15:36Z",
	"AADSTS700016: Application with identifier '22222222-3333-4444-8555-666666666666' was not found in the directory 'Contoso'. This can happen if the application has not been installed by the administrator of the tenant.",
	"AADSTS90002: Tenant '11111111-2222-4333-8444-555555555555' not found. Check to make sure you have the correct tenant ID and are signing into the correct cloud.",
	"AADSTS700024: Client assertion is not within its valid time range. Current time: 2024-06-11T07:15:36.1234567Z, assertion valid from 2024-06-11T05:15:36.0000000Z, expiry time of assertion 2024-06-11T06:15:36.0000000Z. Review the documentation at https://docs.microsoft.com/azure/active-directory/develop/active-directory-certificate-credentials .",
	"AADSTS50013: Assertion failed signature validation. [Reason - The key was not found., Thumbprint of key used by client: 'A1B2C3D4E5F60718293A4B5C6D7E8F9001122334']",
	"AADSTS7000215: Invalid client secret provided. Ensure the secret being sent in the request is the client secret value, not the client secret ID, for a secret added to app '22222222-3333-4444-8555-666666666666'.",
	"The client '33333333-4444-4555-8666-777777777777' with object id '33333333-4444-4555-8666-777777777777' does not have authorization to perform action 'Microsoft.ContainerService/managedClusters/listClusterUserCredential/action' over scope '/subscriptions/44444444-5555-4666-8777-888888888888/resourceGroups/rg-production-westeurope-001/providers/Microsoft.ContainerService/managedClusters/aks-production' or the scope is invalid.",
	"unauthorized: authentication required, visit https://aka.ms/acr/authorization for more information. CorrelationId: 5c6d7e8f-9012-4abc-8def-0123456789ab",
	"client with IP '203.0.113.7' is not allowed access. Refer https://aka.ms/acr/firewall to grant access.",
	"TF400813: The user '55555555-6666-4777-8888-999999999999' is not authorized to access this resource.",
	// Google Cloud
	"The audience in ID Token [https://kubernetes.default.svc.cluster.local] does not match the expected audience https://iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/my-pool/providers/my-provider.",
	"The issuer in ID Token https://oidc.eks.eu-central-1.amazonaws.com/id/0123456789ABCDEF0123456789ABCDEF does not match the expected ones: [https://container.googleapis.com/v1/projects/my-project/locations/europe-west1/clusters/production]",
	"Permission 'iam.serviceAccounts.getAccessToken' denied on resource (or it may not exist). subject: principal://iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/my-project.svc.id.goog/subject/ns/tenant-a/sa/app",
	"The given credential is rejected by the attribute condition: assertion['kubernetes.io']['namespace'] == 'tenant-b' && attribute.team != \"a\"",
	"Error connecting to the given credential's issuer: 503 https://issuer.example.com/.well-known/openid-configuration?x=%2Fa%20b",
	`Permission "artifactregistry.repositories.downloadArtifacts" denied on resource "projects/my-project/locations/europe-west1/repositories/images" (or it may not exist)`,
	"denied: Unauthenticated request. Unauthenticated requests do not have permission \"artifactregistry.repositories.downloadArtifacts\" on resource \"projects/p/locations/europe/repositories/r\" (or it may not exist)",
	"Quota exceeded for quota metric 'Token exchange requests' and limit 'Token exchange requests per minute' of service 'sts.googleapis.com' for consumer 'project_number:123456789012'.",
	// Kubernetes and registries
	`serviceaccounts "app" is forbidden: User "system:serviceaccount:flux-system:source-controller" cannot create resource "serviceaccounts/token" in API group "" in the namespace "tenant-a"`,
	`Operation cannot be fulfilled on serviceaccounts "app": StorageError: invalid object, Code: 4, Key: /registry/serviceaccounts/tenant-a/app, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: 0a1b2c3d-4e5f-4071-8293-a4b5c6d7e8f9, UID in object meta: `,
	"[invalid bearer token, service account token has been invalidated, square/go-jose: error in cryptographic primitive]",
	`x509: certificate is valid for kubernetes, kubernetes.default, kubernetes.default.svc, 10.96.0.1, not 0123456789ABCDEF0123456789ABCDEF.gr7.eu-central-1.eks.amazonaws.com`,
	"manifest unknown: Requested image not found: sha256:dc83ccdd5a232702a7fb0e177f562f9f73976520b4feae89f79cb74b406968b0 in 123456789012.dkr.ecr.eu-central-1.amazonaws.com/team/app@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
	`pull access denied, repository does not exist or may require authorization: server message: insufficient_scope: authorization failed; Bearer realm="https://registry.example.com/oauth2/token",service="registry.example.com",scope="repository:team/app:pull"`,
	"no basic auth credentials; denied: Your authorization token has expired. Reauthenticate and try again.",
	`Post "https://10.96.0.1:443/api/v1/namespaces/tenant-a/serviceaccounts/app/token": dial tcp 10.96.0.1:443: connect: connection refused`,
	`admission webhook "validate.kyverno.svc-fail" denied the request: policy ServiceAccount/tenant-a/app for resource violation: require-owner: autogen-check: 'validation error: label "owner" is required. rule check failed at path /metadata/labels/owner/'`,
}

// The words of a service stay as they are, whatever numbers, names and digests
// are in them.
func TestMessagesOfServicesStay(t *testing.T) {
	secrets := []string{secretJWT, "wJalrXUtnFEMI/K7MDENG/bPxRfi+YEXAMPLEKEY=", "x7k2qp.m4w9zr1tb6yv3hn8", "hunter2-pass1"}
	for _, message := range messages {
		if got := redact.Line(message, secrets...); got != strings.TrimSpace(message) {
			t.Errorf("%q becomes %q", message, got)
		}
	}
}
