// Package cloudtest replaces a cluster and the clouds in tests of controllers
// and providers. An [Issuer] mints real ServiceAccount tokens, and a [Cloud]
// verifies them as the real services do. Both use the loopback interface only,
// and no cloud's SDK.
//
// The example of the package makes an AWS account trust the issuer and a role
// trust a ServiceAccount. An unmodified SDK then exchanges the token. The code
// under test gets a Kubernetes client ([Issuer.Client]) and an HTTP client
// ([Cloud.Client], for auth.WithHTTPClient). Nothing else changes.
//
// A controller under test needs a complete [client.Client]. It passes a fake
// client of controller-runtime to [Issuer.Wrap], or a fake clientset to
// [Issuer.PrependTo]. A fake of another service, such as a bucket, joins the
// cloud with [Cloud.Handle] and checks tokens with [Issuer.Verify]. Programs
// that run in a process of their own reach the cloud with the environment of
// [Cloud.ProxyEnv]. [Cloud.AddFault] makes services fail, and [Cloud.Calls]
// counts their requests. authtest.RunConformance checks a provider against the
// contract of auth.Provider.
//
// # What is not imitated
//
// [Azure], [GCP], [OAuth] and [GitHub] list their limits themselves. None of
// the fakes limits the rate of requests by itself.
//
// [Issuer] does not imitate: keys other than RSA, tokens bound to a Node, the
// longer lifetime that API servers give to tokens of pods, and their limits on
// lifetimes. [Client] does not imitate: kinds outside core/v1, lists, patches,
// resource versions, admission, RBAC (see [Issuer.Refuse]) and garbage
// collection.
//
// STS does not imitate: actions other than AssumeRoleWithWebIdentity,
// AssumeRole, GetWebIdentityToken and GetCallerIdentity; claims of
// organizations and machines; session policies; certificates and thumbprints of
// issuers; disabled regions, and the differences between regions; services
// other than AWS beyond [AWS.AddSTSHost]. STS refuses a missing role like a
// role that does not trust the caller.
//
// Policies of IAM: AssumeRole, AssumeRoleWithWebIdentity, IAM and EKS evaluate
// trust policies and the inline policies of the caller's role. A policy is
// refused as malformed if it has NotAction, NotResource, NotPrincipal, or a
// condition operator that negates or that compares numbers, dates or addresses.
// Policy variables are compared literally. Managed policies, permission
// boundaries, and policies of users, sessions and organizations are not
// imitated. Condition keys are the tags, account and ARN of the principal, and
// external ID, session name, subject, audience and signing algorithm. ECR and
// CodeCommit evaluate [AWS.Deny] alone.
//
// IAM has roles with their tags and inline policies, and the OIDC providers of
// [AWS.AddOIDCProvider]. Its answers have no pages. Its only quota is the
// number of tags. Only new roles take effect with a delay
// ([AWS.SetConsistencyDelay]); other changes take effect at once.
//
// EKS has DescribeCluster, access entries, and [AWS.VerifyEKSToken]. It neither
// lists access entries nor limits their number. It ignores client tokens, and
// access policies grant nothing.
//
// ECR has GetAuthorizationToken, and registries that require the password and
// serve [AWS.SetRegistry]. CodeCommit verifies signatures and serves
// [AWS.SetGitServer].
//
// S3 has GetObject, HeadObject and PutObject with conditional writes,
// ExpectedBucketOwner, anonymous reads and the region's endpoints. It has no
// versions, no checksums, no ranges, no ACLs, no signatures in chunks, and no
// policies beyond the fields of [S3Bucket].
package cloudtest
