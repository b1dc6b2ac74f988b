package doctor

import (
	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/doctor/internal/reason"
)

func gcpCatalog() catalog { return catalog{"gcp", gcpRules(), gcpClasses()} }

func gcpRules() []classRule {
	const grant = "invalid_grant"
	return []classRule{
		{reason: reason.ProviderNotFound, code: "invalid_target"},
		{reason: reason.TargetMalformed, code: "invalid_request", text: "full resource name of the Identity Provider"},
		{reason: reason.TargetMalformed, cause: auth.CauseTargetMalformed},
		{reason: reason.AudienceNotTrusted, code: grant, text: "audience in ID Token"},
		{reason: reason.IssuerNotTrusted, code: grant, text: "issuer in ID Token"},
		{reason: reason.SigningKeyUnavailable, code: grant, text: "connecting to the given credential's issuer"},
		{reason: reason.SignatureNotVerified, code: grant, text: "verify the ID Token signature"},
		{reason: reason.TokenExpired, code: grant, text: "stale to sign-in"},
		{reason: reason.TokenExpired, cause: auth.CauseTokenExpired},
		{reason: reason.AttributeConditionRefuses, code: "unauthorized_client"},
		{reason: reason.SubjectTooLong, text: "mapped attribute exceeds"},
		{reason: reason.APIDisabled, text: "has not been used in project", knowsBetter: true},
		{reason: reason.IdentityNotFound, text: "Gaia id not found"},
		{reason: reason.IdentityMalformed, cause: auth.CauseIdentityMalformed},
		{reason: reason.ImpersonationDenied, status: 403, text: "iam.serviceAccounts.get"},
		{reason: reason.LifetimeRefused, text: "lifetimes of more than 1 hour"},
		{reason: reason.ImpersonationDenied, text: "IAM returned 403"},
		{reason: reason.IdentityNotFound, text: "IAM returned 404"},
		{reason: reason.RegistryDenied, text: "artifactregistry."},
		{reason: reason.ClusterDenied, text: "container.clusters.get"},
		{reason: reason.MetadataServerSilent, cause: auth.CauseMetadataServer},
	}
}

func gcpClasses() []Class {
	const sts, iam = "Google STS", "Google IAM Credentials"
	const providers, accounts = "gcloud iam workload-identity-pools providers ", "gcloud iam service-accounts "
	const show = providers + "describe PROVIDER_NAME"
	const name = "use projects/PROJECT_NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER"
	const cluster, account = "check that this is the cluster that was meant", "correct the annotation iam.gke.io/gcp-service-account"
	const upload = "kubectl get --raw /openid/v1/jwks >keys.json && " + providers + "update-oidc PROVIDER_NAME --jwk-json-path=keys.json"
	return []Class{
		{Reason: reason.ProviderNotFound, Service: sts, Summary: "pool or provider do not exist or are disabled",
			Causes: []string{"the project's ID instead of its number", "a typo in pool or provider", "deleted (for 30 days it can be restored) or disabled", "created less than five minutes ago"},
			Remedy: name, Show: show},
		{Reason: reason.TargetMalformed, Service: sts, Summary: "the name of the provider is malformed",
			Causes: []string{"the project's ID instead of its number", "the name of a pool", "a variable was not replaced", "another universe domain", "the pool of GKE"},
			Remedy: name},
		{Reason: reason.AudienceNotTrusted, Service: sts, Summary: "the token's audience is not one that the provider allows",
			Causes: []string{"the token has another audience", "allowedAudiences is set, so the default one is refused"},
			Remedy: "request the token with an allowed audience", Grant: "add it with --allowed-audiences", Show: show},
		{Reason: reason.IssuerNotTrusted, Service: sts, Summary: "the token's issuer is not the provider's", Causes: []string{"a wrong issuer URI", "a slash at the end"},
			Remedy: cluster, Grant: providers + "update-oidc PROVIDER_NAME --issuer-uri=ISSUER", Show: show},
		{Reason: reason.SigningKeyUnavailable, Service: sts, Summary: "Google has no key for the token",
			Causes: []string{"the issuer is not public and no keys are uploaded", "the uploaded keys lack the token's kid", "an EC key where RSA is expected", "Google keeps old keys for a while"},
			Remedy: cluster, Grant: upload, Show: show},
		{Reason: reason.SignatureNotVerified, Service: sts, Summary: "the signature is wrong", Causes: []string{"the key was replaced under the same kid"},
			Remedy: cluster, Grant: upload, Show: show},
		{Reason: reason.TokenExpired, Service: sts, Summary: "the token is too old, or from the future",
			Causes: []string{"it has expired", "the issuer's clock is ahead", "a program keeps an old token"}, Remedy: "use a fresh token; synchronize the clocks"},
		{Reason: reason.AttributeConditionRefuses, Service: sts, Summary: "the attribute condition rejects the token",
			Causes: []string{"the condition, or the case of its values", "the token has no subject"},
			Remedy: "check that this is the ServiceAccount that was meant", Grant: "change the provider's attribute condition", Show: show},
		{Reason: reason.SubjectTooLong, Service: sts, Summary: "a mapped attribute is too long", Causes: []string{"namespace and name are too long for google.subject"},
			Remedy: "shorten the names, or map another claim"},
		{Reason: reason.ImpersonationDenied, Service: iam, Summary: "the ServiceAccount may not act as the service account",
			Causes: []string{"roles/iam.workloadIdentityUser on it is missing, or has another member", "the member has the project's ID instead of its number",
				"the role was granted to the service account instead of on it", "granted less than five minutes ago", "a typo in the e-mail address"},
			Remedy: account + ", if another service account was meant",
			Grant:  accounts + "add-iam-policy-binding EMAIL --role roles/iam.workloadIdentityUser --member PRINCIPAL", Show: accounts + "get-iam-policy EMAIL"},
		{Reason: reason.APIDisabled, Service: iam, Summary: "the API is disabled", Causes: []string{"IAM Service Account Credentials API is off in the project"},
			Remedy: "gcloud services enable iamcredentials.googleapis.com --project PROJECT_ID"},
		{Reason: reason.IdentityNotFound, Service: iam, Summary: "the service account does not exist", Causes: []string{"a typo in the e-mail address", "deleted", "another project"},
			Remedy: account},
		{Reason: reason.IdentityMalformed, Service: iam, Summary: "the e-mail address is malformed", Causes: []string{"the member of a policy", "a resource name"},
			Remedy: account},
		{Reason: reason.LifetimeRefused, Service: iam, Summary: "the lifetime is refused", Causes: []string{"more than an hour was asked for", "the token is about to expire"},
			Remedy: "ask for 3600 seconds or less"},
		{Reason: reason.MetadataServerSilent, Service: "GKE metadata server", Summary: "the metadata server gives no credentials",
			Causes: []string{"the pod has just started", "it uses the network of its host", "the node pool has no GKE metadata server", "the ServiceAccount is not annotated"},
			Remedy: "wait some seconds; enable GKE_METADATA on the node pool, or annotate the ServiceAccount"},
		{Reason: reason.RegistryDenied, Service: "Google Artifact Registry", Summary: "the registry refuses",
			Causes: []string{"the role Artifact Registry Reader is missing", "a typo in location or repository"},
			Remedy: "correct location, repository or service account, if another one was meant",
			Grant:  "gcloud artifacts repositories add-iam-policy-binding REPOSITORY --location LOCATION --project REGISTRY_PROJECT --role roles/artifactregistry.reader --member MEMBER"},
		{Reason: reason.ClusterDenied, Service: "GKE", Summary: "the cluster may not be described", Causes: []string{"roles/container.clusterViewer is missing"},
			Remedy: "correct the name of the cluster, if another one was meant", Grant: "grant roles/container.clusterViewer"},
	}
}
