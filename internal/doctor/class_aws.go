package doctor

import (
	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/doctor/internal/reason"
)

func awsCatalog() catalog { return catalog{"aws", awsRules(), awsClasses()} }

func awsRules() []classRule {
	const invalid = "InvalidIdentityToken"
	return []classRule{
		{reason: reason.RegistryDenied, text: "ecr:GetAuthorizationToken"},
		{reason: reason.RegistryDenied, text: "ecr-public:GetAuthorizationToken"},
		{reason: reason.ClusterNotFound, code: "ResourceNotFoundException", knowsBetter: true},
		{reason: reason.ClusterDenied, text: "eks:DescribeCluster", knowsBetter: true},
		{reason: reason.TrustPolicyRefusesSubject, text: "sts:AssumeRoleWithWebIdentity"},
		{reason: reason.IssuerNotTrusted, code: invalid, text: "No OpenIDConnect provider found"},
		{reason: reason.SigningKeyUnavailable, code: invalid, text: "retrieve verification key"},
		{reason: reason.AudienceNotTrusted, code: invalid, text: "Incorrect token audience"},
		{reason: reason.TokenWithoutAudience, code: invalid, text: "Missing a required claim"},
		{reason: reason.TokenMalformed, code: invalid, text: "not a valid JWT"},
		{reason: reason.IssuerCertificateChanged, code: invalid, text: "thumbprint"},
		{reason: reason.SignatureNotVerified, code: invalid},
		{reason: reason.TokenExpired, code: "ExpiredTokenException"},
		{reason: reason.TokenExpired, cause: auth.CauseTokenExpired},
		{reason: reason.IdentityMalformed, cause: auth.CauseIdentityMalformed},
		{reason: reason.IdentityMalformed, code: "ValidationError", text: "roleArn"},
		{reason: reason.LifetimeRefused, code: "ValidationError", text: "MaxSessionDuration"},
		{reason: reason.RegionDisabled, code: "RegionDisabledException"},
		{reason: reason.TargetMalformed, cause: auth.CauseTargetMalformed},
		{reason: reason.IssuerDidNotAnswer, code: "IDPRejectedClaim"},
		{reason: reason.IssuerDidNotAnswer, code: "IDPCommunicationError"},
		{reason: reason.IdentityNotConfigured, cause: auth.CauseIdentityMissing},
		{reason: reason.RegistryPasswordExpired, text: "authorization token has expired"},
		{reason: reason.RequestSignatureRefused, code: "SignatureDoesNotMatch"},
		{reason: reason.RequestSignatureRefused, text: "Signature expired"},
		{reason: reason.RequestSignatureRefused, text: "Signature not yet current"},
		{reason: reason.TrustPolicyRefusesSubject, code: "AccessDenied"},
	}
}

func awsClasses() []Class {
	const sts, ecr, eks = "AWS STS", "Amazon ECR", "Amazon EKS"
	const publish = "publish openid-configuration and the output of kubectl get --raw /openid/v1/jwks"
	return []Class{
		{Reason: reason.TrustPolicyRefusesSubject, Service: sts, Summary: "the role's trust policy does not admit the ServiceAccount",
			Causes: []string{"sub in the trust policy names another ServiceAccount, or has * under StringEquals", "the role does not exist",
				"a condition is on the wrong key, or on another audience", "its principal is another cluster's OIDC provider", "another role was asked for than meant"},
			Remedy: "correct the role that the ServiceAccount names",
			Grant:  "set the issuer without https://, with :sub after it, to SUBJECT in the trust policy; StringLike for patterns"},
		{Reason: reason.IssuerNotTrusted, Service: sts, Summary: "the account has no OIDC provider for the token's issuer",
			Causes: []string{"it was never created", "it was created in another account than the role's",
				"its URL differs from the issuer: the cluster was rebuilt, or a slash"},
			Remedy: "check that this is the cluster that was meant",
			Grant:  "eksctl utils associate-iam-oidc-provider --approve --cluster CLUSTER_NAME"},
		{Reason: reason.SigningKeyUnavailable, Service: sts, Summary: "AWS cannot get the key that signed the token",
			Causes: []string{"the issuer's documents are not public", "the published keys are older than the last rotation",
				"a key or the token has no kid", "the discovery document lacks a list that is required", "the issuer is slow"},
			Remedy: publish},
		{Reason: reason.AudienceNotTrusted, Service: sts, Summary: "the token's audience is not a client ID of the OIDC provider",
			Causes: []string{"the OIDC provider lacks the audience as client ID", "a typo such as sts.amazon.com", "it is the API server's default token"},
			Remedy: "request the token with the audience sts.amazonaws.com", Grant: "add the client ID to the OIDC provider"},
		{Reason: reason.TokenWithoutAudience, Service: sts, Summary: "the token has no audience", Causes: []string{"it is a legacy token of a Secret"},
			Remedy: "use a projected token, or kubectl create token"},
		{Reason: reason.TokenMalformed, Service: sts, Summary: "this is not a ServiceAccount token",
			Causes: []string{"it is an opaque access token", "the file holds something else too", "the signing key is not RSA"},
			Remedy: "correct the token file; sign with RS256"},
		{Reason: reason.IssuerCertificateChanged, Service: sts, Summary: "the certificate of the issuer is not the one that was registered",
			Causes: []string{"the CA of the issuer's certificate has changed", "the thumbprint was wrong from the start"},
			Remedy: "check that this is the issuer that was meant",
			Grant:  "add the right one to the list of the OIDC provider, which aws iam update-open-id-connect-provider-thumbprint replaces as a whole"},
		{Reason: reason.SignatureNotVerified, Service: sts, Summary: "the token cannot be validated",
			Causes: []string{"the published keys are not those that sign", "the issuer's documents are not public"}, Remedy: publish},
		{Reason: reason.TokenExpired, Service: sts, Summary: "the token has expired",
			Causes: []string{"a program keeps the token and does not read the file again", "the volume is not rotated", "clocks differ"},
			Remedy: "read the token file before each use; restart the pod"},
		{Reason: reason.IdentityMalformed, Service: "AWS", Summary: "the role's ARN is malformed",
			Causes: []string{"it is the ARN of something else", "a placeholder was not replaced"},
			Remedy: "set the annotation eks.amazonaws.com/role-arn to arn:aws:iam::ACCOUNT_ID:role/ROLE_NAME"},
		{Reason: reason.LifetimeRefused, Service: sts, Summary: "the session is to last longer than the role allows",
			Causes: []string{"the duration exceeds MaxSessionDuration", "chained roles last an hour at most"},
			Remedy: "ask for less, or raise MaxSessionDuration of the role"},
		{Reason: reason.RegionDisabled, Service: sts, Summary: "STS is not activated in the region for this account",
			Causes: []string{"the account has not activated the region"}, Remedy: "use another region, or activate it in the account"},
		{Reason: reason.TargetMalformed, Service: sts, Summary: "the region is not usable",
			Causes: []string{"the region is not named", "its name has a typo"}, Remedy: "set AWS_REGION"},
		{Reason: reason.IssuerDidNotAnswer, Service: sts, Summary: "the issuer refused, or did not answer AWS in time",
			Causes: []string{"a passing failure of the issuer", "the issuer is slow"}, Remedy: "try again; make the issuer's documents quick to read"},
		{Reason: reason.IdentityNotConfigured, Service: "AWS", Summary: "the identity of the node or of another program is used",
			Causes: []string{"the pod is older than the annotation", "the webhook has not changed the pod", "the SDK is too old", "static keys in the environment"},
			Remedy: "correct the ServiceAccount's annotation and restart the pod"},
		{Reason: reason.RegistryDenied, Service: ecr, Summary: "the role may not log in to the registry, or not pull",
			Causes: []string{"its policy lacks ecr:GetAuthorizationToken, which needs resource *", "its policy lacks ecr:BatchGetImage or ecr:GetDownloadUrlForLayer",
				"another role is used", "the host is not recognized as ECR"},
			Remedy: "correct the repository or the role, if another one was meant", Grant: "attach AmazonEC2ContainerRegistryReadOnly to the role"},
		{Reason: reason.RegistryPasswordExpired, Service: ecr, Summary: "the password has expired", Causes: []string{"it was kept for more than 12 hours"},
			Remedy: "log in again, or docker logout public.ecr.aws"},
		{Reason: reason.ClusterNotFound, Service: eks, Summary: "the cluster is not found",
			Causes: []string{"another region or account", "a typo in its name"}, Remedy: "correct account, region and name in the cluster's ARN"},
		{Reason: reason.ClusterDenied, Service: eks, Summary: "the cluster may not be described", Causes: []string{"the role lacks eks:DescribeCluster"},
			Remedy: "correct account, region and name in the cluster's ARN", Grant: "allow eks:DescribeCluster"},
		{Reason: reason.ClusterRefusesIdentity, Service: eks, Summary: "the cluster does not know the role",
			Causes: []string{"the role has no access entry and no line in aws-auth", "the token was signed for another cluster's name", "the token is malformed or older than 15 minutes", "STS of another partition"},
			Remedy: "correct the name of the cluster, if another one was meant", Grant: "aws eks create-access-entry --cluster-name CLUSTER_NAME --principal-arn ROLE_ARN"},
		{Reason: reason.RequestSignatureRefused, Service: sts, Summary: "the signature is refused",
			Causes: []string{"the clock is wrong", "a signed header is missing", "the secret key is wrong"}, Remedy: "synchronize the clock"},
	}
}
