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
// STS: the actions other than AssumeRoleWithWebIdentity, AssumeRole and GetCallerIdentity; what session policies
// and tags allow; trust conditions other than on subject, audience, principal and external ID; the IAM policies of users
// and roles (see AWS.Deny, and Trust for sts:TagSession and sts:SetSourceIdentity);
// certificates and thumbprints of issuers; regions that are disabled, and the differences between regions; eventual
// consistency; quotas (see Fault); services other than AWS beyond what AWS.AddSTSHost says. A role that does not exist is
// refused like one that does not trust the caller.
//
// The other services of AWS: ECR has GetAuthorizationToken and registries that ask for the password and serve what
// AWS.SetRegistry gives them; EKS has DescribeCluster, AWS.VerifyEKSToken, and access entries that can be read but do not
// count for that; IAM has GetRole and the OIDC providers, with what AWS.SetRole and AWS.AddOIDCProvider say; CodeCommit
// checks signatures and serves what AWS.SetGitServer gives it; KMS has Encrypt, Decrypt and GenerateDataKey with symmetric
// keys.
package authtest
