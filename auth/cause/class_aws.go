package cause

import (
	"github.com/workloadid/workloadid/auth/provider"
)

func awsCatalog() catalog {
	const invalid = "InvalidIdentityToken"
	const sts, ecr, eks = "AWS STS", "Amazon ECR", "Amazon EKS"
	const publish, correct = "publish these documents at the issuer's address",
		"correct account, region and name in the cluster's ARN"
	const discovery, jwks = "kubectl get --raw /.well-known/openid-configuration", "kubectl get --raw /openid/v1/jwks"
	const role, action, arn = "aws iam get-role --role-name ROLE_NAME", `"Effect":"Allow","Action":`,
		" --open-id-connect-provider-arn PROVIDER_ARN"
	return catalog{"aws", []classRule{
		{reason: RegistryDenied, text: "ecr:GetAuthorizationToken"},
		{reason: RegistryDenied, text: "ecr-public:GetAuthorizationToken"},
		{reason: ClusterNotFound, code: "ResourceNotFoundException", knowsBetter: true},
		{reason: ClusterDenied, text: "eks:DescribeCluster", knowsBetter: true},
		{reason: TrustPolicyRefusesSubject, text: "sts:AssumeRoleWithWebIdentity"},
		{reason: IssuerNotTrusted, code: invalid, text: "No OpenIDConnect provider found"},
		{reason: SigningKeyUnavailable, code: invalid, text: "retrieve verification key"},
		{reason: AudienceNotTrusted, code: invalid, text: "Incorrect token audience"},
		{reason: TokenWithoutAudience, code: invalid, text: "Missing a required claim"},
		{reason: TokenMalformed, code: invalid, text: "not a valid JWT"},
		{reason: IssuerCertificateChanged, code: invalid, text: "thumbprint"},
		{reason: SignatureNotVerified, code: invalid},
		{reason: TokenExpired, code: "ExpiredTokenException"},
		{reason: IdentityMalformed, cause: provider.CauseIdentityMalformed},
		{reason: IdentityMalformed, code: "ValidationError", text: "roleArn"},
		{reason: LifetimeRefused, code: "ValidationError", text: "MaxSessionDuration"},
		{reason: RegionDisabled, code: "RegionDisabledException"},
		{reason: TargetMalformed, cause: provider.CauseTargetMalformed},
		{reason: IssuerDidNotAnswer, code: "IDPRejectedClaim"},
		{reason: IssuerDidNotAnswer, code: "IDPCommunicationError"},
		{reason: IdentityNotConfigured, cause: provider.CauseIdentityMissing},
		{reason: RequestSignatureRefused, code: "SignatureDoesNotMatch"},
		{reason: RequestSignatureRefused, text: "Signature expired"},
		{reason: RequestSignatureRefused, text: "Signature not yet current"},
		{reason: TrustPolicyRefusesSubject, code: "AccessDenied"},
	}, []Class{
		known(TrustPolicyRefusesSubject, sts, "the role's trust policy does not admit the ServiceAccount",
			"correct the role that the ServiceAccount names",
			"sub in the trust policy names another ServiceAccount, or has * under StringEquals", "the role does not exist",
			"a condition is on the wrong key, or on another audience", "its principal is another cluster's OIDC provider",
			"another role was asked for than meant").
			grant(role+` --query Role.AssumeRolePolicyDocument --output json | jq '.Statement = ([.Statement, {`+action+
				`"sts:AssumeRoleWithWebIdentity","Condition":{"StringEquals":`+
				`{"ISSUER_HOST:aud":"AUDIENCE","ISSUER_HOST:sub":"SUBJECT"}},"Principal":{"Federated":"PROVIDER_ARN"}}] | flatten)' > trust.json`,
				"aws iam update-assume-role-policy --role-name ROLE_NAME --policy-document file://trust.json"),
		known(IssuerNotTrusted, sts, "the account has no OIDC provider for the token's issuer",
			"check that this is the cluster that was meant",
			"it was never created", "it was created in another account than the role's",
			"its URL differs from the issuer: the cluster was rebuilt, or a slash",
			"the cluster still has its default issuer, which no cloud can reach").
			grant("aws iam create-open-id-connect-provider --url ISSUER --client-id-list AUDIENCE"),
		known(SigningKeyUnavailable, sts, "AWS cannot get the key that signed the token", publish,
			"the issuer's documents are not public",
			"the published keys are older than the last rotation", "a key or the token has no kid",
			"the issuer is slow").show(discovery, jwks),
		known(AudienceNotTrusted, sts, "the token's audience is not a client ID of the OIDC provider",
			"request the token with the audience sts.amazonaws.com",
			"the OIDC provider lacks the audience as client ID", "a typo such as sts.amazon.com",
			"it is the API server's default token").
			grant("aws iam add-client-id-to-open-id-connect-provider" + arn + " --client-id AUDIENCE"),
		known(TokenWithoutAudience, sts, "the token has no audience", "use a projected token",
			"it is a legacy token of a Secret"),
		known(TokenMalformed, sts, "this is not a ServiceAccount token", "correct the token file; sign with RS256",
			"it is an opaque access token", "the file holds something else too", "the signing key is not RSA"),
		known(IssuerCertificateChanged, sts, "the certificate of the issuer is not the one that was registered",
			"check that this is the issuer that was meant",
			"the CA of the issuer's certificate has changed", "the thumbprint was wrong from the start").
			grant("aws iam update-open-id-connect-provider-thumbprint" + arn + " --thumbprint-list ALL_THUMBPRINTS"),
		known(SignatureNotVerified, sts, "the token cannot be validated", publish,
			"the published keys are not those that sign", "the issuer's documents are not public").show(discovery, jwks),
		known(TokenExpired, sts, "the token has expired", "read the token file before each use; restart the pod",
			"a program keeps the token and does not read the file again", "the volume is not rotated", "clocks differ"),
		known(IdentityMalformed, "AWS", "the role's ARN is malformed",
			"set the annotation eks.amazonaws.com/role-arn to arn:aws:iam::ACCOUNT_ID:role/ROLE_NAME",
			"it is the ARN of something else", "a placeholder was not replaced"),
		known(LifetimeRefused, sts, "the session is to last longer than the role allows",
			"ask for less, or raise MaxSessionDuration of the role",
			"the duration exceeds MaxSessionDuration", "chained roles last an hour at most"),
		known(RegionDisabled, sts, "STS is not activated in the region for this account",
			"use another region, or activate it in the account", "the account has not activated the region"),
		known(TargetMalformed, sts, "the region is not usable", "set AWS_REGION", "the region is not named",
			"its name has a typo"),
		known(IssuerDidNotAnswer, sts, "the issuer refused, or did not answer AWS in time",
			"try again; make the issuer's documents quick to read", "a passing failure of the issuer", "the issuer is slow"),
		known(IdentityNotConfigured, "AWS", "no role is set up for the ServiceAccount or its pod",
			"correct the ServiceAccount's annotation and restart the pod",
			"the pod is older than the annotation", "the cluster is not EKS and has no Amazon EKS Pod Identity Webhook",
			"static keys in the environment"),
		known(RegistryDenied, ecr, "the role may not log in to the registry, or not pull",
			"correct the repository or the role, if another one was meant",
			"its policy lacks ecr:GetAuthorizationToken, which needs resource *",
			"its policy lacks ecr:BatchGetImage or ecr:GetDownloadUrlForLayer", "another role is used").
			grant(
				"aws iam attach-role-policy --role-name ROLE_NAME --policy-arn arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly"),
		known(ClusterNotFound, eks, "the cluster is not found", correct, "another region or account", "a typo in its name"),
		known(ClusterDenied, eks, "the cluster may not be described", correct, "the role lacks eks:DescribeCluster").
			grant(
				`aws iam put-role-policy --role-name ROLE_NAME --policy-name describe-cluster --policy-document '{"Version":"2012-10-17","Statement":[{` + action + `"eks:DescribeCluster","Resource":"CLUSTER_ARN"}]}'`),
		known(RequestSignatureRefused, sts, "the signature is refused", "synchronize the clock", "the clock is wrong",
			"a signed header is missing"),
	}}
}
