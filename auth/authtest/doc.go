// Package authtest has what a test needs in place of a cluster and a cloud: an Issuer that mints real ServiceAccount tokens,
// and a Cloud that verifies them as the real services do. Neither needs a network beyond the loopback interface, and
// neither imports a cloud's SDK.
//
//	issuer, err := authtest.NewIssuer(authtest.IssuerConfig{})
//	cloud, err := authtest.NewCloud()
//	defer cloud.Close()
//
// The account trusts the issuer, and a role trusts a ServiceAccount:
//
//	cloud.AWS().AddOIDCProvider("123456789012", issuer.URL(), issuer.HTTPClient(), "sts.amazonaws.com")
//	cloud.AWS().SetRole("arn:aws:iam::123456789012:role/tenant-a", authtest.Trust{
//		Issuer: issuer.URL(), Subjects: []string{"system:serviceaccount:tenant-a:app"}})
//
// The code under test gets a Kubernetes client and an HTTP client, and nothing else changes:
//
//	kubeClient := issuer.Client(serviceAccount)
//	token, err := auth.GetAccessToken(ctx, &aws.Provider{},
//		auth.WithServiceAccount(client.ObjectKeyFromObject(serviceAccount), kubeClient),
//		auth.WithOwner(object), auth.WithSTSRegion("eu-central-1"),
//		auth.WithHTTPClient(cloud.Client()))
//
// Whole programs reach the cloud through a proxy, with the environment of Cloud.ProxyEnv.
//
// What goes wrong in production can be had on demand, see Fault; Cloud.Calls tells what was asked. A provider of one's
// own is held against the contract by RunConformance.
//
// # What is not imitated
//
// Issuer: keys other than RSA, tokens bound to a Node, the grace that API servers give to tokens of pods, and the
// limits that they set on lifetimes. Its client is controller-runtime's fake client with that one's limits: no
// admission, no RBAC (see Issuer.Refuse), no garbage collection.
//
// STS: the actions other than AssumeRoleWithWebIdentity, AssumeRole and GetCallerIdentity; session policies; certificates
// and thumbprints of issuers; regions that are disabled, and the differences between regions; services other than AWS
// beyond what AWS.AddSTSHost says. A role that does not exist is refused like one that does not trust the caller.
//
// Policies of IAM: AssumeRole, AssumeRoleWithWebIdentity, IAM and EKS evaluate trust policies and the inline policies of
// the caller's role. A policy is refused as malformed if it has NotAction, NotResource, NotPrincipal, or a condition
// operator that negates or that compares numbers, dates or addresses. Policy variables are compared literally. Managed
// policies, permission boundaries, and policies of users, sessions and organizations are not imitated. Condition keys are
// the tags, account and ARN of the principal, and external ID, session name, subject and audience. ECR, KMS and CodeCommit
// go by AWS.Deny alone.
//
// IAM has roles with their tags and inline policies, and the OIDC providers of AWS.AddOIDCProvider. Its answers have no
// pages. Its only quota is the number of tags. Its only delay is that of new roles
// (AWS.SetConsistencyDelay): other changes take effect at once.
//
// EKS has DescribeCluster, access entries, and AWS.VerifyEKSToken. It neither lists access entries nor limits their number;
// it does not know a request again by its client token; and access policies grant nothing.
//
// The other services of AWS: ECR has GetAuthorizationToken and registries that ask for the password and serve what
// AWS.SetRegistry gives them; CodeCommit checks signatures and serves what AWS.SetGitServer gives it; KMS has Encrypt,
// Decrypt and GenerateDataKey with symmetric keys.
package authtest
