package doctor

import (
	"github.com/workloadid/workloadid/internal/authcause"
	"github.com/workloadid/workloadid/internal/doctor/internal/reason"
)

func azureCatalog() catalog { return catalog{"azure", azureRules(), azureClasses()} }

func azureRules() []classRule {
	return []classRule{
		{reason: reason.IssuerNotTrusted, code: "AADSTS700211"},
		{reason: reason.AudienceNotTrusted, code: "AADSTS700212"},
		{reason: reason.SubjectNotTrusted, code: "AADSTS700213"},
		{reason: reason.SubjectCaseDiffers, code: "AADSTS7002138"},
		{reason: reason.NoFederatedCredential, code: "AADSTS70021"},
		{reason: reason.NoFederatedCredential, code: "AADSTS70025"},
		{reason: reason.IdentityNotFound, code: "AADSTS700016"},
		{reason: reason.IdentityMalformed, cause: authcause.IdentityMalformed},
		{reason: reason.TenantNotFound, code: "AADSTS90002"},
		{reason: reason.TargetMalformed, code: "AADSTS900023"},
		{reason: reason.TargetMalformed, cause: authcause.TargetMalformed},
		{reason: reason.TokenExpired, code: "AADSTS700024"},
		{reason: reason.TokenExpired, cause: authcause.TokenExpired},
		{reason: reason.SigningKeyUnavailable, code: "AADSTS7000272"},
		{reason: reason.SigningKeyUnavailable, code: "AADSTS50013"},
		{reason: reason.IssuerNotPublic, code: "AADSTS50166"},
		{reason: reason.IssuerNotPublic, code: "AADSTS501661"},
		{reason: reason.IssuerNotPublic, code: "AADSTS90061"},
		{reason: reason.ScopeUnknown, code: "AADSTS500011"},
		{reason: reason.ScopeUnknown, code: "AADSTS50001"},
		{reason: reason.RoleNotAssigned, code: "AADSTS501051"},
		{reason: reason.IdentityNotConfigured, cause: authcause.IdentityMissing},
		{reason: reason.IdentityNotConfigured, text: "Identity not found"},
		{reason: reason.ClusterDenied, text: "does not have access to the resource in Azure"},
		{reason: reason.ClusterDenied, code: "AuthorizationFailed"},
		{reason: reason.RegistryDenied, text: "aka.ms/acr/authorization"},
		{reason: reason.RegistryDenied, text: "Application not registered with AAD"},
	}
}

func azureClasses() []Class {
	const entra, acr, aks = "Microsoft Entra ID", "Azure Container Registry", "AKS"
	const identity = " --resource-group RESOURCE_GROUP"
	const credential, values = "az identity federated-credential ", " --identity-name IDENTITY_NAME --resource-group RESOURCE_GROUP --name CREDENTIAL_NAME " +
		"--issuer ISSUER --subject SUBJECT --audiences api://AzureADTokenExchange"
	const update, client = credential + "update" + values, "correct the client ID, if another identity was meant"
	const assign = "az role assignment create --assignee CLIENT_ID --role "
	return []Class{
		known(reason.IssuerNotTrusted, entra, "no federated credential has the token's issuer", "check that this is the cluster that was meant",
			"the / at the end", "the cluster was rebuilt or its issuer changed", "the cluster still has its default issuer").grant(update),
		known(reason.AudienceNotTrusted, entra, "no federated credential has the token's audience", "use the audience api://AzureADTokenExchange for the token",
			"a custom audience", "an audience copied from another cloud", "a typo").grant(update),
		known(reason.SubjectNotTrusted, entra, "no federated credential has the token's subject", client,
			"another namespace or ServiceAccount", "it was created a moment ago", "of several created at once one was lost").grant(update),
		known(reason.SubjectCaseDiffers, entra, "the subject differs in upper and lower case", client, "the case of namespace or name").grant(update),
		known(reason.NoFederatedCredential, entra, "the identity has no federated credential that fits the token", client,
			"the client ID is another identity's", "its issuer lacks the / at the end", "its subject names another ServiceAccount", "it was created less than two minutes ago").
			grant(credential + "create" + values).show(credential + "list --identity-name IDENTITY_NAME" + identity),
		known(reason.IdentityNotFound, entra, "the tenant does not know the client ID", "set client-id and tenant-id to those of the identity",
			"it is the object ID or the resource ID", "it is in another tenant", "the identity was deleted").show("az identity show --name IDENTITY_NAME" + identity),
		known(reason.IdentityMalformed, entra, "the client ID is malformed", "set azure.workload.identity/client-id to the client ID of the identity",
			"it is the resource ID", "a variable was not replaced").show("az identity show --name IDENTITY_NAME" + identity),
		known(reason.TenantNotFound, entra, "the tenant does not exist in this cloud", "correct tenant or authority", "a typo", "the authority of another cloud"),
		known(reason.TargetMalformed, entra, "the tenant is malformed", "set azure.workload.identity/tenant-id to a GUID", "a variable was not replaced"),
		known(reason.TokenExpired, entra, "the token is not within its time", "read the token file before each use",
			"a program keeps the token and does not read the file again", "a job that runs longer than its token", "clocks differ"),
		known(reason.SigningKeyUnavailable, entra, "the published keys do not hold the one that signed the token", "publish these keys at the issuer's address",
			"the published keys are older than the last rotation", "the token has no kid").show("kubectl get --raw /openid/v1/jwks"),
		known(reason.IssuerNotPublic, entra, "Entra cannot read the issuer's documents", "make the documents public", "the issuer is not public", "a passing failure", "the OIDC endpoint of AKS is broken"),
		known(reason.ScopeUnknown, entra, "the resource of the scope does not exist in the tenant", "use RESOURCE/.default", "a wrong scope", "the scope of another cloud"),
		known(reason.RoleNotAssigned, entra, "the application wants a role to be assigned", "correct the client ID or the scope, if another one was meant",
			"no role of the resource's application is assigned").grant("assign the identity an app role of the resource's enterprise application"),
		known(reason.IdentityNotConfigured, "Azure", "no workload identity is set up, so the node's is asked for", "correct label and annotations and restart the pod",
			`the pod lacks the label azure.workload.identity/use: "true"`, "an annotation is misspelt", "the webhook is not installed", "the pod was not restarted"),
		known(reason.RegistryDenied, acr, "the registry refuses", "correct the registry or the client ID, if another one was meant",
			"the role AcrPull is missing, or was assigned less than ten minutes ago", "a token of another tenant", "the registry's network rules").grant(assign + "AcrPull --scope REGISTRY_ID"),
		known(reason.ClusterDenied, aks, "the identity is known, but may not", "correct the cluster or the client ID, if another one was meant",
			`Azure RBAC wants a role "Azure Kubernetes Service RBAC ..."`, "the role Azure Kubernetes Service Cluster User is missing").
			grant(assign + `"Azure Kubernetes Service Cluster User Role" --scope CLUSTER_ID`),
	}
}
