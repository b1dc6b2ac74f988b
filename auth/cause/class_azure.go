package cause

import (
	"github.com/workloadid/workloadid/auth/provider"
)

func azureCatalog() catalog {
	const entra, acr, aks = "Microsoft Entra ID", "Azure Container Registry", "AKS"
	const identity = " --resource-group RESOURCE_GROUP"
	const credential, values = "az identity federated-credential ",
		" --identity-name IDENTITY_NAME --resource-group RESOURCE_GROUP --name CREDENTIAL_NAME " +
			"--issuer ISSUER --subject SUBJECT --audiences api://AzureADTokenExchange"
	const update, client = credential + "update" + values, "correct the client ID, if another identity was meant"
	const assign = "az role assignment create --assignee CLIENT_ID --role "
	return catalog{"azure", []classRule{
		{reason: IssuerNotTrusted, code: "AADSTS700211"},
		{reason: AudienceNotTrusted, code: "AADSTS700212"},
		{reason: SubjectNotTrusted, code: "AADSTS700213"},
		{reason: SubjectCaseDiffers, code: "AADSTS7002138"},
		{reason: NoFederatedCredential, code: "AADSTS70021"},
		{reason: NoFederatedCredential, code: "AADSTS70025"},
		{reason: IdentityNotFound, code: "AADSTS700016"},
		{reason: IdentityMalformed, cause: provider.CauseIdentityMalformed},
		{reason: TenantNotFound, code: "AADSTS90002"},
		{reason: TargetMalformed, code: "AADSTS900023"},
		{reason: TargetMalformed, cause: provider.CauseTargetMalformed},
		{reason: TokenExpired, code: "AADSTS700024"},
		{reason: SigningKeyUnavailable, code: "AADSTS7000272"},
		{reason: SigningKeyUnavailable, code: "AADSTS50013"},
		{reason: IssuerNotPublic, code: "AADSTS50166"},
		{reason: IssuerNotPublic, code: "AADSTS501661"},
		{reason: IssuerNotPublic, code: "AADSTS90061"},
		{reason: ScopeUnknown, code: "AADSTS500011"},
		{reason: ScopeUnknown, code: "AADSTS50001"},
		{reason: RoleNotAssigned, code: "AADSTS501051"},
		{reason: IdentityNotConfigured, cause: provider.CauseIdentityMissing},
		{reason: IdentityNotConfigured, text: "Identity not found"},
		{reason: ClusterDenied, text: "does not have access to the resource in Azure"},
		{reason: ClusterDenied, code: "AuthorizationFailed"},
		{reason: RegistryDenied, text: "aka.ms/acr/authorization"},
		{reason: RegistryDenied, text: "Application not registered with AAD"},
	}, []Class{
		known(IssuerNotTrusted, entra, "no federated credential has the token's issuer",
			"check that this is the cluster that was meant",
			"the / at the end", "the cluster was rebuilt or its issuer changed",
			"the cluster still has its default issuer").grant(update),
		known(AudienceNotTrusted, entra, "no federated credential has the token's audience",
			"use the audience api://AzureADTokenExchange for the token",
			"a custom audience", "an audience copied from another cloud", "a typo").grant(update),
		known(SubjectNotTrusted, entra, "no federated credential has the token's subject", client,
			"another namespace or ServiceAccount", "it was created a moment ago",
			"of several created at once one was lost").grant(update),
		known(SubjectCaseDiffers, entra, "the subject differs in upper and lower case", client,
			"the case of namespace or name").grant(update),
		known(NoFederatedCredential, entra, "the identity has no federated credential that fits the token", client,
			"the client ID is another identity's", "its issuer lacks the / at the end",
			"its subject names another ServiceAccount", "it was created less than two minutes ago").
			grant(credential + "create" + values).show(credential + "list --identity-name IDENTITY_NAME" + identity),
		known(IdentityNotFound, entra, "the tenant does not know the client ID",
			"set client-id and tenant-id to those of the identity",
			"it is the object ID or the resource ID", "it is in another tenant",
			"the identity was deleted").show("az identity show --name IDENTITY_NAME" + identity),
		known(IdentityMalformed, entra, "the client ID is malformed",
			"set azure.workload.identity/client-id to the client ID of the identity",
			"it is the resource ID", "a variable was not replaced").show("az identity show --name IDENTITY_NAME" + identity),
		known(TenantNotFound, entra, "the tenant does not exist in this cloud", "correct tenant or authority", "a typo",
			"the authority of another cloud"),
		known(TargetMalformed, entra, "the tenant is malformed", "set azure.workload.identity/tenant-id to a GUID",
			"a variable was not replaced"),
		known(TokenExpired, entra, "the token is not within its time", "read the token file before each use",
			"a program keeps the token and does not read the file again", "a job that runs longer than its token",
			"clocks differ"),
		known(SigningKeyUnavailable, entra, "the published keys do not hold the one that signed the token",
			"publish these keys at the issuer's address",
			"the published keys are older than the last rotation",
			"the token has no kid").show("kubectl get --raw /openid/v1/jwks"),
		known(IssuerNotPublic, entra, "Entra cannot read the issuer's documents", "make the documents public",
			"the issuer is not public", "a passing failure", "the OIDC endpoint of AKS is broken"),
		known(ScopeUnknown, entra, "the resource of the scope does not exist in the tenant", "use RESOURCE/.default",
			"a wrong scope", "the scope of another cloud"),
		known(RoleNotAssigned, entra, "the application wants a role to be assigned",
			"correct the client ID or the scope, if another one was meant",
			"no role of the resource's application is assigned").grant(
			"assign the identity an app role of the resource's enterprise application"),
		known(IdentityNotConfigured, "Azure", "no identity is set up for the ServiceAccount or its pod",
			"correct label and annotations and restart the pod",
			`the pod lacks the label azure.workload.identity/use: "true"`, "an annotation is misspelt",
			"the webhook is not installed", "the pod was not restarted"),
		known(RegistryDenied, acr, "the registry refuses", "correct the registry or the client ID, if another one was meant",
			"the role AcrPull is missing, or was assigned less than ten minutes ago",
			"the registry has ABAC repository permissions and wants the role Container Registry Repository Reader instead",
			"a token of another tenant", "the registry's network rules").grant(assign + "AcrPull --scope REGISTRY_ID"),
		known(ClusterDenied, aks, "the identity is known, but may not",
			"correct the cluster or the client ID, if another one was meant",
			`Azure RBAC wants a role "Azure Kubernetes Service RBAC ..."`,
			"the role Azure Kubernetes Service Cluster User is missing").
			grant(assign + `"Azure Kubernetes Service Cluster User Role" --scope CLUSTER_ID`),
	}}
}
