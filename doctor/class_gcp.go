package doctor

import "github.com/workloadid/workloadid/auth"

func gcpRules() []classRule {
	const p, grant = "gcp", "invalid_grant"
	return []classRule{
		{id: "G1", provider: p, code: "invalid_target"},
		{id: "G2", provider: p, code: "invalid_request", text: "full resource name of the Identity Provider"},
		{id: "G2", provider: p, cause: auth.CauseTargetMalformed},
		{id: "G3", provider: p, code: grant, text: "audience in ID Token"},
		{id: "G4", provider: p, code: grant, text: "issuer in ID Token"},
		{id: "G5", provider: p, code: grant, text: "connecting to the given credential's issuer"},
		{id: "G6", provider: p, code: grant, text: "verify the ID Token signature"},
		{id: "G7", provider: p, code: grant, text: "stale to sign-in"},
		{id: "G7", provider: p, cause: auth.CauseTokenExpired},
		{id: "G8", provider: p, code: "unauthorized_client"},
		{id: "G9", provider: p, text: "mapped attribute exceeds"},
		{id: "G11", provider: p, text: "has not been used in project", knowsBetter: true},
		{id: "G12", provider: p, text: "Gaia id not found"},
		{id: "G12", provider: p, cause: auth.CauseIdentityMalformed},
		{id: "G10", provider: p, status: 403, text: "iam.serviceAccounts.get"},
		{id: "G13", provider: p, text: "lifetimes of more than 1 hour"},
		{id: "G14", provider: p, text: "IAM returned 403"},
		{id: "G12", provider: p, text: "IAM returned 404"},
		{id: "G16", provider: p, text: "Identity Pool does not exist"},
		{id: "G17", provider: p, text: "artifactregistry."},
		{id: "G18", provider: p, text: "container.clusters.get"},
		{id: "G15", provider: p, cause: auth.CauseMetadataServer},
	}
}

func gcpClasses() []Class {
	const sts, iam, meta = "Google STS", "Google IAM Credentials", "GKE metadata server"
	return []Class{
		{"G1", sts, "pool or provider do not exist or are disabled",
			[]string{"the project's ID instead of its number", "a typo in pool or provider", "deleted (for 30 days it can be restored) or disabled", "created less than five minutes ago"},
			"use projects/PROJECT_NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER", ""},
		{"G2", sts, "the name of the provider is malformed",
			[]string{"the project's ID instead of its number", "the name of a pool", "a variable was not replaced", "another universe domain", "the pool of GKE"},
			"use projects/PROJECT_NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER", ""},
		{"G3", sts, "the token's audience is not one that the provider allows",
			[]string{"the token has another audience", "allowedAudiences is set, so the default one is refused"},
			"request the token with an allowed audience", "add it with --allowed-audiences"},
		{"G4", sts, "the token's issuer is not the provider's", []string{"a wrong issuer URI", "a slash at the end"},
			"check that this is the cluster that was meant", "gcloud iam workload-identity-pools providers update-oidc PROVIDER_NAME --issuer-uri=ISSUER"},
		{"G5", sts, "Google has no key for the token",
			[]string{"the issuer is not public and no keys are uploaded", "the uploaded keys lack the token's kid", "an EC key where RSA is expected", "Google keeps old keys for a while"},
			"check that this is the cluster that was meant", "upload the output of kubectl get --raw /openid/v1/jwks with --jwk-json-path"},
		{"G6", sts, "the signature is wrong", []string{"the key was replaced under the same kid"},
			"check that this is the cluster that was meant", "upload the output of kubectl get --raw /openid/v1/jwks with --jwk-json-path"},
		{"G7", sts, "the token is too old, or from the future", []string{"it has expired", "the issuer's clock is ahead", "a program keeps an old token"},
			"use a fresh token; synchronize the clocks", ""},
		{"G8", sts, "the attribute condition rejects the token", []string{"the condition, or the case of its values", "the token has no subject"},
			"check that this is the ServiceAccount that was meant", "change the provider's attribute condition"},
		{"G9", sts, "a mapped attribute is too long", []string{"namespace and name are too long for google.subject"}, "shorten the names, or map another claim", ""},
		{"G10", iam, "the ServiceAccount may not act as the service account",
			[]string{"roles/iam.workloadIdentityUser on it is missing, or has another member", "the role was granted to the service account instead of on it", "granted less than five minutes ago", "a typo in the e-mail address"},
			"correct the annotation iam.gke.io/gcp-service-account, if another service account was meant", "gcloud iam service-accounts add-iam-policy-binding EMAIL --role roles/iam.workloadIdentityUser --member PRINCIPAL"},
		{"G11", iam, "the API is disabled", []string{"IAM Service Account Credentials API is off in the project"},
			"gcloud services enable iamcredentials.googleapis.com --project PROJECT", ""},
		{"G12", iam, "the service account does not exist", []string{"a typo in the e-mail address", "deleted", "another project"},
			"correct the annotation iam.gke.io/gcp-service-account", ""},
		{"G13", iam, "the lifetime is refused", []string{"more than an hour was asked for", "the token is about to end"}, "ask for 3600 seconds or less", ""},
		{"G14", meta, "the ServiceAccount may not act as the service account", []string{"roles/iam.workloadIdentityUser for serviceAccount:PROJECT.svc.id.goog[NAMESPACE/NAME] is missing"},
			"correct the annotation iam.gke.io/gcp-service-account, if another service account was meant", "add the binding"},
		{"G15", meta, "the metadata server gives no credentials",
			[]string{"the pod has just started", "it uses the network of its host", "the node pool has no GKE metadata server", "the ServiceAccount is not annotated"},
			"wait some seconds; enable GKE_METADATA on the node pool, or annotate the ServiceAccount", ""},
		{"G16", "Google IAM", "the project has no identity pool of GKE", []string{"no cluster of the project has Workload Identity"}, "create the cluster first", ""},
		{"G17", "Google Artifact Registry", "the registry refuses", []string{"the role Artifact Registry Reader is missing", "a typo in location or repository"},
			"correct location, repository or service account, if another one was meant", "gcloud artifacts repositories add-iam-policy-binding REPOSITORY --location LOCATION --project PROJECT_ID --role roles/artifactregistry.reader --member MEMBER"},
		{"G18", "GKE", "the cluster may not be described", []string{"roles/container.clusterViewer is missing"}, "correct the name of the cluster, if another one was meant", "grant roles/container.clusterViewer"},
	}
}
