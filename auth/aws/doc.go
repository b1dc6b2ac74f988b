// Package aws turns ServiceAccounts into AWS credentials: through AssumeRoleWithWebIdentity for a ServiceAccount (IAM
// roles for service accounts), and through the SDK's own chain for the controller itself.
//
// A tenant names the role on a ServiceAccount of his namespace:
//
//	metadata:
//	  annotations:
//	    eks.amazonaws.com/role-arn: arn:aws:iam::123456789012:role/tenant-a
//
// and the role's trust policy names the cluster's issuer and that ServiceAccount:
//
//	"Principal": {"Federated": "arn:aws:iam::123456789012:oidc-provider/<issuer without https://>"},
//	"Action": "sts:AssumeRoleWithWebIdentity",
//	"Condition": {"StringEquals": {
//	  "<issuer without https://>:sub": "system:serviceaccount:tenant-a:app",
//	  "<issuer without https://>:aud": "sts.amazonaws.com"}}
//
// The controller hands the credentials to any client of the AWS SDK:
//
//	provider := &aws.Provider{} // one for the whole controller
//
//	credentials := provider.NewCredentialsProvider(
//		auth.WithServiceAccount(client.ObjectKey{Namespace: "tenant-a", Name: "app"}, kubeClient),
//		auth.WithCache(tokenCache, object),
//		auth.WithSTSRegion("eu-central-1"))
//	bucket := s3.New(s3.Options{Region: "eu-central-1", Credentials: credentials})
//
// The region is that of auth.WithSTSRegion, else the environment variable AWS_REGION; STS answers at the region's own
// endpoint. For a ServiceAccount nothing else of the environment counts. Session names are "<namespace>.<name>", so
// that CloudTrail shows who acted; names that are too long for AWS end in a hash instead.
//
// The controller's own identity comes from the SDK's chain. A credential_process of the shared configuration is refused
// unless auth.WithAllowShellOut is given. AWS_CA_BUNDLE replaces the system's roots for the chain, but not
// what a client of auth.WithHTTPClient trusts.
//
// # Registries, clusters and Git
//
// auth.GetArtifactRegistryCredentials and auth.NewKeychain know Amazon ECR in all partitions and ECR Public;
// auth.GetRESTConfig knows EKS clusters by their ARN; auth.GetGitCredentials knows AWS CodeCommit. STS is asked in the
// region of the registry, the cluster or the repository then, unless auth.WithSTSRegion names another. The role needs
// ecr:GetAuthorizationToken and the permissions to pull; for ECR Public ecr-public:GetAuthorizationToken and
// sts:GetServiceBearerToken; for EKS an access entry in the cluster, and eks:DescribeCluster unless address and certificate
// authority are given; codecommit:GitPull.
//
// # Further options
//
// WithAssumeRole goes on to another role, with an external ID, session tags and a source identity; several form a chain.
// WithSessionDuration, WithSessionNamePrefix and AssumeRole.SessionName shape the session. They belong to the controller. One
// that lets tenants set them, in a field of its objects, has to decide itself which roles, external IDs and tag keys each tenant
// may name. auth.Policy.Authorize sees all roles of a chain, but not the external ID, which keeps one customer of a role from
// another.
//
// # S3-compatible services
//
// MinIO and Ceph issue credentials in the same way. Their hosts have to be listed in Provider.AllowedSTSHosts; with such a host
// in auth.WithSTSEndpoint, the roles have the names of that service, such as arn:minio:iam:::role/app.
//
// NewSignedCallerIdentity makes logins for HashiCorp Vault and for whatever else believes AWS STS.
package aws
