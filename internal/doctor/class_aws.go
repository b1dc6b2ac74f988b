package doctor

import (
	"github.com/workloadid/workloadid/internal/authcause"
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
		{reason: reason.TokenExpired, cause: authcause.TokenExpired},
		{reason: reason.IdentityMalformed, cause: authcause.IdentityMalformed},
		{reason: reason.IdentityMalformed, code: "ValidationError", text: "roleArn"},
		{reason: reason.LifetimeRefused, code: "ValidationError", text: "MaxSessionDuration"},
		{reason: reason.RegionDisabled, code: "RegionDisabledException"},
		{reason: reason.TargetMalformed, cause: authcause.TargetMalformed},
		{reason: reason.IssuerDidNotAnswer, code: "IDPRejectedClaim"},
		{reason: reason.IssuerDidNotAnswer, code: "IDPCommunicationError"},
		{reason: reason.IdentityNotConfigured, cause: authcause.IdentityMissing},
		{reason: reason.RequestSignatureRefused, code: "SignatureDoesNotMatch"},
		{reason: reason.RequestSignatureRefused, text: "Signature expired"},
		{reason: reason.RequestSignatureRefused, text: "Signature not yet current"},
		{reason: reason.TrustPolicyRefusesSubject, code: "AccessDenied"},
	}
}

func awsClasses() []Class {
	const sts, ecr, eks = "AWS STS", "Amazon ECR", "Amazon EKS"
	const publish, correct = "publish these documents at the issuer's address", "correct account, region and name in the cluster's ARN"
	const discovery, jwks = "kubectl get --raw /.well-known/openid-configuration", "kubectl get --raw /openid/v1/jwks"
	const role, action, arn = "aws iam get-role --role-name ROLE_NAME", `"Effect":"Allow","Action":`, " --open-id-connect-provider-arn PROVIDER_ARN"
	return []Class{
		known(reason.TrustPolicyRefusesSubject, sts, "the role's trust policy does not admit the ServiceAccount", "correct the role that the ServiceAccount names",
			"sub in the trust policy names another ServiceAccount, or has * under StringEquals", "the role does not exist",
			"a condition is on the wrong key, or on another audience", "its principal is another cluster's OIDC provider", "another role was asked for than meant").
			grant(role+` --query Role.AssumeRolePolicyDocument --output json | jq '.Statement = ([.Statement, {`+action+`"sts:AssumeRoleWithWebIdentity","Condition":{"StringEquals":`+
				`{"ISSUER_HOST:aud":"AUDIENCE","ISSUER_HOST:sub":"SUBJECT"}},"Principal":{"Federated":"PROVIDER_ARN"}}] | flatten)' > trust.json`,
				"aws iam update-assume-role-policy --role-name ROLE_NAME --policy-document file://trust.json"),
		known(reason.IssuerNotTrusted, sts, "the account has no OIDC provider for the token's issuer", "check that this is the cluster that was meant",
			"it was never created", "it was created in another account than the role's", "its URL differs from the issuer: the cluster was rebuilt, or a slash").
			grant("aws iam create-open-id-connect-provider --url ISSUER --client-id-list AUDIENCE"),
		known(reason.SigningKeyUnavailable, sts, "AWS cannot get the key that signed the token", publish, "the issuer's documents are not public",
			"the published keys are older than the last rotation", "a key or the token has no kid", "the issuer is slow").show(discovery, jwks),
		known(reason.AudienceNotTrusted, sts, "the token's audience is not a client ID of the OIDC provider", "request the token with the audience sts.amazonaws.com",
			"the OIDC provider lacks the audience as client ID", "a typo such as sts.amazon.com", "it is the API server's default token").
			grant("aws iam add-client-id-to-open-id-connect-provider" + arn + " --client-id AUDIENCE"),
		known(reason.TokenWithoutAudience, sts, "the token has no audience", "use a projected token", "it is a legacy token of a Secret"),
		known(reason.TokenMalformed, sts, "this is not a ServiceAccount token", "correct the token file; sign with RS256",
			"it is an opaque access token", "the file holds something else too", "the signing key is not RSA"),
		known(reason.IssuerCertificateChanged, sts, "the certificate of the issuer is not the one that was registered", "check that this is the issuer that was meant",
			"the CA of the issuer's certificate has changed", "the thumbprint was wrong from the start").
			grant("aws iam update-open-id-connect-provider-thumbprint" + arn + " --thumbprint-list ALL_THUMBPRINTS"),
		known(reason.SignatureNotVerified, sts, "the token cannot be validated", publish, "the published keys are not those that sign", "the issuer's documents are not public").show(discovery, jwks),
		known(reason.TokenExpired, sts, "the token has expired", "read the token file before each use; restart the pod",
			"a program keeps the token and does not read the file again", "the volume is not rotated", "clocks differ"),
		known(reason.IdentityMalformed, "AWS", "the role's ARN is malformed", "set the annotation eks.amazonaws.com/role-arn to arn:aws:iam::ACCOUNT_ID:role/ROLE_NAME",
			"it is the ARN of something else", "a placeholder was not replaced"),
		known(reason.LifetimeRefused, sts, "the session is to last longer than the role allows", "ask for less, or raise MaxSessionDuration of the role",
			"the duration exceeds MaxSessionDuration", "chained roles last an hour at most"),
		known(reason.RegionDisabled, sts, "STS is not activated in the region for this account", "use another region, or activate it in the account", "the account has not activated the region"),
		known(reason.TargetMalformed, sts, "the region is not usable", "set AWS_REGION", "the region is not named", "its name has a typo"),
		known(reason.IssuerDidNotAnswer, sts, "the issuer refused, or did not answer AWS in time", "try again; make the issuer's documents quick to read",
			"a passing failure of the issuer", "the issuer is slow"),
		known(reason.IdentityNotConfigured, "AWS", "the identity of the node or of another program is used", "correct the ServiceAccount's annotation and restart the pod",
			"the pod is older than the annotation", "the webhook has not changed the pod", "static keys in the environment"),
		known(reason.RegistryDenied, ecr, "the role may not log in to the registry, or not pull", "correct the repository or the role, if another one was meant",
			"its policy lacks ecr:GetAuthorizationToken, which needs resource *", "its policy lacks ecr:BatchGetImage or ecr:GetDownloadUrlForLayer", "another role is used").
			grant("aws iam attach-role-policy --role-name ROLE_NAME --policy-arn arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly"),
		known(reason.ClusterNotFound, eks, "the cluster is not found", correct, "another region or account", "a typo in its name"),
		known(reason.ClusterDenied, eks, "the cluster may not be described", correct, "the role lacks eks:DescribeCluster").
			grant(`aws iam put-role-policy --role-name ROLE_NAME --policy-name describe-cluster --policy-document '{"Version":"2012-10-17","Statement":[{` + action + `"eks:DescribeCluster","Resource":"CLUSTER_ARN"}]}'`),
		known(reason.ClusterRefusesIdentity, eks, "the cluster does not know the role", "correct the name of the cluster, if another one was meant",
			"the role has no access entry and no line in aws-auth", "the token was signed for another cluster's name").
			grant("aws eks create-access-entry --cluster-name CLUSTER_NAME --region CLUSTER_REGION --principal-arn ROLE_ARN"),
		known(reason.RequestSignatureRefused, sts, "the signature is refused", "synchronize the clock", "the clock is wrong", "a signed header is missing"),
	}
}
