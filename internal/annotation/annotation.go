// Package annotation names the annotations of ServiceAccounts that the
// providers read, for packages without a cloud SDK too.
package annotation

// The annotations of Amazon EKS.
const (
	AWSRoleARN         = "eks.amazonaws.com/role-arn"
	AWSAudience        = "eks.amazonaws.com/audience"
	AWSTokenExpiration = "eks.amazonaws.com/token-expiration" //nolint:gosec // a name, not a credential
)

// The annotations of Microsoft Entra Workload ID.
const (
	AzureClientID = "azure.workload.identity/client-id"
	AzureTenantID = "azure.workload.identity/tenant-id"
	//nolint:gosec // a name, not a credential
	AzureTokenExpiration = "azure.workload.identity/service-account-token-expiration"
)

// The annotations for Google Cloud, of GKE and of RFC-0010.
const (
	GCPServiceAccount           = "iam.gke.io/gcp-service-account"
	GCPWorkloadIdentityProvider = "gcp.auth.fluxcd.io/workload-identity-provider"
)
