package cause

import (
	"github.com/workloadid/workloadid/auth/provider"
)

func gcpCatalog() catalog {
	const grant = "invalid_grant"
	const sts, iam = "Google STS", "Google IAM Credentials"
	const providers, accounts, bind = "gcloud iam workload-identity-pools providers ", "gcloud iam service-accounts ",
		"add-iam-policy-binding "
	const show, update = providers + "describe PROVIDER_NAME", providers + "update-oidc PROVIDER_NAME --"
	const name = "use projects/PROJECT_NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER"
	const cluster, account = "check that this is the cluster that was meant",
		"correct the annotation iam.gke.io/gcp-service-account"
	const jwks, upload = "kubectl get --raw /openid/v1/jwks > keys.json", update + "jwk-json-path=keys.json"
	return catalog{"gcp", []classRule{
		{reason: ProviderNotFound, code: "invalid_target"},
		{reason: TargetMalformed, code: "invalid_request", text: "full resource name of the Identity Provider"},
		{reason: TargetMalformed, cause: provider.CauseTargetMalformed},
		{reason: AudienceNotTrusted, code: grant, text: "audience in ID Token"},
		{reason: IssuerNotTrusted, code: grant, text: "issuer in ID Token"},
		{reason: SigningKeyUnavailable, code: grant, text: "connecting to the given credential's issuer"},
		{reason: SignatureNotVerified, code: grant, text: "verify the ID Token signature"},
		{reason: TokenExpired, code: grant, text: "stale to sign-in"},
		{reason: AttributeConditionRefuses, code: "unauthorized_client"},
		{reason: SubjectTooLong, text: "exceeds the 127 bytes limit"},
		{reason: APIDisabled, text: "has not been used in project", knowsBetter: true},
		{reason: IdentityNotFound, text: "Gaia id not found"},
		{reason: IdentityMalformed, cause: provider.CauseIdentityMalformed},
		{reason: ImpersonationDenied, status: 403, text: "iam.serviceAccounts.get"},
		{reason: LifetimeRefused, text: "lifetimes of more than 1 hour"},
		{reason: ImpersonationDenied, text: "IAM returned 403"},
		{reason: IdentityNotFound, text: "IAM returned 404"},
		{reason: RegistryDenied, text: "artifactregistry."},
		{reason: ClusterDenied, text: "container.clusters.get"},
		{reason: ClusterNotFound, status: 404, text: "/clusters/"},
		{reason: MetadataServerSilent, cause: provider.CauseMetadataServer},
	}, []Class{
		known(ProviderNotFound, sts, "pool or provider do not exist or are disabled", name,
			"the project's ID instead of its number", "a typo in pool or provider",
			"deleted (for 30 days it can be restored) or disabled", "created less than five minutes ago").show(show),
		known(TargetMalformed, sts, "the name of the provider is malformed", name,
			"the project's ID instead of its number", "the name of a pool", "a variable was not replaced", "the pool of GKE"),
		known(AudienceNotTrusted, sts, "the token's audience is not one that the provider allows",
			"request the token with an allowed audience",
			"the token has another audience",
			"allowedAudiences is set, so the default one is refused").grant(update +
			"allowed-audiences=ALL_AUDIENCES").show(show),
		known(IssuerNotTrusted, sts, "the token's issuer is not the provider's", cluster,
			"a wrong issuer URI", "a slash at the end",
			"the cluster still has its default issuer").grant(update + "issuer-uri=ISSUER").show(show),
		known(SigningKeyUnavailable, sts, "Google has no key for the token", cluster,
			"the issuer is not public and no keys are uploaded",
			"the uploaded keys lack the token's kid", "an EC key where RSA is expected",
			"Google keeps old keys for a while").grant(jwks, upload).show(show),
		known(SignatureNotVerified, sts, "the signature is wrong", cluster,
			"the key was replaced under the same kid").grant(jwks, upload).show(show),
		known(TokenExpired, sts, "the token is too old, or from the future", "use a fresh token; synchronize the clocks",
			"it has expired", "the issuer's clock is ahead", "a program keeps an old token"),
		known(AttributeConditionRefuses, sts, "the attribute condition rejects the token",
			"check that this is the ServiceAccount that was meant",
			"the condition, or the case of its values",
			"the token has no subject").grant(update + "attribute-condition=CONDITION").show(show),
		known(SubjectTooLong, sts, "a mapped attribute is too long", "shorten the names, or map another claim",
			"namespace and name are too long for google.subject"),
		known(ImpersonationDenied, iam, "the ServiceAccount may not act as the service account",
			account+", if another service account was meant",
			"roles/iam.workloadIdentityUser on it is missing, or has another member",
			"the member has the project's ID instead of its number",
			"the role was granted to the service account instead of on it", "granted less than five minutes ago").
			grant(accounts + bind + "EMAIL --role roles/iam.workloadIdentityUser --member PRINCIPAL").show(accounts +
			"get-iam-policy EMAIL"),
		known(APIDisabled, iam, "the API is disabled",
			"gcloud services enable iamcredentials.googleapis.com --project PROJECT_ID",
			"IAM Service Account Credentials API is off in the project"),
		known(IdentityNotFound, iam, "the service account does not exist", account, "a typo in the e-mail address", "deleted",
			"another project"),
		known(IdentityMalformed, iam, "the e-mail address is malformed", account, "the member of a policy",
			"a resource name"),
		known(LifetimeRefused, iam, "the lifetime is refused", "ask for 3600 seconds or less",
			"more than an hour was asked for", "the token is about to expire"),
		known(MetadataServerSilent, "GKE metadata server", "the metadata server gives no credentials",
			"wait some seconds; enable GKE_METADATA on the node pool, or annotate the ServiceAccount",
			"the pod has just started", "it uses the network of its host", "the node pool has no GKE metadata server",
			"the ServiceAccount is not annotated"),
		known(RegistryDenied, "Google Artifact Registry", "the registry refuses",
			"correct location, repository or service account, if another one was meant",
			"the role Artifact Registry Reader is missing", "a typo in location or repository").
			grant("gcloud artifacts repositories " + bind +
				"REPOSITORY --location LOCATION --project REGISTRY_PROJECT --role roles/artifactregistry.reader --member MEMBER"),
		known(ClusterNotFound, "GKE", "the cluster is not found", "correct the name of the cluster",
			"a typo in project, location or name"),
		known(ClusterDenied, "GKE", "the cluster may not be described",
			"correct the name of the cluster, if another one was meant", "roles/container.clusterViewer is missing").
			grant("gcloud projects " + bind + "CLUSTER_PROJECT --role roles/container.clusterViewer --member MEMBER"),
	}}
}
