// Package aws turns ServiceAccounts into AWS credentials: through
// AssumeRoleWithWebIdentity for a ServiceAccount (IAM roles for service
// accounts), and through the SDK's own chain for the controller itself.
//
// A tenant names the role on a ServiceAccount:
//
//	metadata:
//	  annotations:
//	    eks.amazonaws.com/role-arn: arn:aws:iam::123456789012:role/tenant-a
//
// and the role's trust policy names the cluster's issuer and that
// ServiceAccount:
//
//	"Principal": {"Federated": "arn:aws:iam::123456789012:oidc-provider/<issuer without https://>"},
//	"Action": "sts:AssumeRoleWithWebIdentity",
//	"Condition": {"StringEquals": {
//	  "<issuer without https://>:sub": "system:serviceaccount:tenant-a:app",
//	  "<issuer without https://>:aud": "sts.amazonaws.com"}}
//
// The controller passes the credentials to any client of the AWS SDK:
//
//	provider := &aws.Provider{} // one for the whole controller
//
//	credentials := provider.NewCredentialsProvider(
//		auth.WithServiceAccount(client.ObjectKey{Namespace: "tenant-a", Name: "app"}, kubeClient),
//		auth.WithCache(tokenCache, object),
//		auth.WithSTSRegion("eu-central-1"))
//	bucket := s3.New(s3.Options{Region: "eu-central-1", Credentials: credentials})
//
// The region comes from auth.WithSTSRegion, else from the environment variable
// AWS_REGION. It selects the regional endpoint of STS. A call for a
// ServiceAccount reads nothing else from the environment. Session names are
// "<namespace>.<name>", so CloudTrail shows the ServiceAccount. Names that are
// too long for AWS end in a hash.
//
// The controller's own identity comes from the SDK's chain. A
// credential_process of the shared configuration needs auth.WithAllowShellOut.
// AWS_CA_BUNDLE replaces the system's roots for the chain. A client of
// auth.WithHTTPClient keeps its own.
//
// # Registries, clusters and Git
//
// auth.GetArtifactRegistryCredentials and auth.NewKeychain accept Amazon ECR in
// all partitions and ECR Public. auth.GetRESTConfig accepts EKS clusters by
// their ARN, auth.GetGitCredentials AWS CodeCommit. They use STS in the region
// of the registry, the cluster or the repository, unless auth.WithSTSRegion
// names another one. The role needs these permissions:
//
//   - ECR: ecr:GetAuthorizationToken and the permissions to pull
//   - ECR Public: ecr-public:GetAuthorizationToken and
//     sts:GetServiceBearerToken
//   - EKS: an access entry in the cluster, and eks:DescribeCluster unless the
//     call has address and certificate authority
//   - CodeCommit: codecommit:GitPull
//
// # Further options
//
// [WithAssumeRole] assumes another role, with an external ID, session tags and
// a source identity. Several form a chain. [WithSessionDuration],
// [WithSessionNamePrefix] and [AssumeRole.SessionName] shape the session. These
// options belong to the controller. If its objects have fields for them, it has
// to decide which roles, external IDs and tag keys each tenant may name.
// auth.Policy.Authorize sees all roles of a chain, but not the external ID,
// which separates the customers of a role.
//
// # S3-compatible services
//
// MinIO and Ceph issue credentials in the same way. [Provider.AllowedSTSHosts]
// has to list their hosts. With such a host in auth.WithSTSEndpoint, roles have
// the names of that service, such as arn:minio:iam:::role/app. The audience of
// the token is the URL of the service, or the one in [Provider.STSAudiences]:
// the service could use a token that AWS accepts.
package aws
