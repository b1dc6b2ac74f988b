package doctor

import (
	"github.com/workloadid/workloadid/auth"
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
		{reason: reason.IdentityMalformed, cause: auth.CauseIdentityMalformed},
		{reason: reason.TenantNotFound, code: "AADSTS90002"},
		{reason: reason.TargetMalformed, code: "AADSTS900023"},
		{reason: reason.TargetMalformed, cause: auth.CauseTargetMalformed},
		{reason: reason.TokenExpired, code: "AADSTS700024"},
		{reason: reason.TokenExpired, cause: auth.CauseTokenExpired},
		{reason: reason.SigningKeyUnavailable, code: "AADSTS7000272"},
		{reason: reason.SigningKeyUnavailable, code: "AADSTS50013"},
		{reason: reason.IssuerNotPublic, code: "AADSTS50166"},
		{reason: reason.IssuerNotPublic, code: "AADSTS501661"},
		{reason: reason.IssuerNotPublic, code: "AADSTS90061"},
		{reason: reason.ScopeUnknown, code: "AADSTS500011"},
		{reason: reason.ScopeUnknown, code: "AADSTS50001"},
		{reason: reason.RoleNotAssigned, code: "AADSTS501051"},
		{reason: reason.IdentityNotConfigured, cause: auth.CauseIdentityMissing},
		{reason: reason.IdentityNotConfigured, text: "Identity not found"},
		{reason: reason.ClusterDenied, text: "does not have access to the resource in Azure"},
		{reason: reason.ClusterDenied, code: "AuthorizationFailed"},
		{reason: reason.RegistryDenied, text: "aka.ms/acr/authorization"},
		{reason: reason.RegistryDenied, text: "Application not registered with AAD"},
	}
}

func azureClasses() []Class {
	const entra, acr, aks = "Microsoft Entra ID", "Azure Container Registry", "AKS"
	const credential, values = "az identity federated-credential ", " --identity-name IDENTITY_NAME --resource-group RESOURCE_GROUP --name CREDENTIAL_NAME " +
		"--issuer ISSUER --subject SUBJECT --audiences api://AzureADTokenExchange"
	const create, update = credential + "create" + values, credential + "update" + values
	const client = "correct the client ID, if another identity was meant"
	return []Class{
		{Reason: reason.IssuerNotTrusted, Service: entra, Summary: "no federated credential has the token's issuer",
			Causes: []string{"the / at the end", "the cluster was rebuilt or its issuer changed", "the cluster still has its default issuer"},
			Remedy: "check that this is the cluster that was meant", Grant: update},
		{Reason: reason.AudienceNotTrusted, Service: entra, Summary: "no federated credential has the token's audience",
			Causes: []string{"a custom audience", "an audience copied from another cloud", "a typo"},
			Remedy: "use the audience api://AzureADTokenExchange for the token", Grant: update},
		{Reason: reason.SubjectNotTrusted, Service: entra, Summary: "no federated credential has the token's subject",
			Causes: []string{"another namespace or ServiceAccount", "it was created a moment ago", "of several created at once one was lost"}, Remedy: client, Grant: update},
		{Reason: reason.SubjectCaseDiffers, Service: entra, Summary: "the subject differs in upper and lower case",
			Causes: []string{"the case of namespace or name"}, Remedy: client, Grant: update},
		{Reason: reason.NoFederatedCredential, Service: entra, Summary: "the identity has no federated credential that fits the token",
			Causes: []string{"the client ID is another identity's", "its issuer lacks the / at the end", "its subject names another ServiceAccount", "it was created less than two minutes ago"},
			Remedy: client, Grant: create, Show: credential + "list --identity-name IDENTITY_NAME --resource-group RESOURCE_GROUP"},
		{Reason: reason.IdentityNotFound, Service: entra, Summary: "the tenant does not know the client ID",
			Causes: []string{"it is the object ID or the resource ID", "it is in another tenant", "the identity was deleted"},
			Remedy: "set azure.workload.identity/client-id to az identity show --query clientId, and tenant-id to its tenant"},
		{Reason: reason.IdentityMalformed, Service: entra, Summary: "the client ID is malformed", Causes: []string{"it is the resource ID", "a variable was not replaced"},
			Remedy: "set azure.workload.identity/client-id to az identity show --query clientId"},
		{Reason: reason.TenantNotFound, Service: entra, Summary: "the tenant does not exist in this cloud", Causes: []string{"a typo", "the authority of another cloud"},
			Remedy: "correct tenant or authority"},
		{Reason: reason.TargetMalformed, Service: entra, Summary: "the tenant is malformed", Causes: []string{"a variable was not replaced"},
			Remedy: "set azure.workload.identity/tenant-id to a GUID"},
		{Reason: reason.TokenExpired, Service: entra, Summary: "the token is not within its time",
			Causes: []string{"a program keeps the token and does not read the file again", "a job that runs longer than its token", "clocks differ"},
			Remedy: "read the token file before each use"},
		{Reason: reason.SigningKeyUnavailable, Service: entra, Summary: "the published keys do not hold the one that signed the token",
			Causes: []string{"the published keys are older than the last rotation", "the token has no kid"},
			Remedy: "publish the output of kubectl get --raw /openid/v1/jwks"},
		{Reason: reason.IssuerNotPublic, Service: entra, Summary: "Entra cannot read the issuer's documents",
			Causes: []string{"the issuer is not public", "a passing failure", "the OIDC endpoint of AKS is broken"},
			Remedy: "make the documents public; for AKS run az aks update"},
		{Reason: reason.ScopeUnknown, Service: entra, Summary: "the resource of the scope does not exist in the tenant",
			Causes: []string{"a wrong scope", "the scope of another cloud"}, Remedy: "use RESOURCE/.default"},
		{Reason: reason.RoleNotAssigned, Service: entra, Summary: "the application wants a role to be assigned",
			Causes: []string{"no role of the resource's application is assigned"}, Remedy: "correct the client ID or the scope, if another one was meant", Grant: "assign the role"},
		{Reason: reason.IdentityNotConfigured, Service: "Azure", Summary: "no workload identity is set up, so the node's is asked for",
			Causes: []string{`the pod lacks the label azure.workload.identity/use: "true"`, "an annotation is misspelt", "the webhook is not installed", "the pod was not restarted"},
			Remedy: "correct label and annotations and restart the pod"},
		{Reason: reason.RegistryDenied, Service: acr, Summary: "the registry refuses",
			Causes: []string{"the role AcrPull is missing, or was assigned less than ten minutes ago", "a token of another tenant", "the registry's network rules"},
			Remedy: "correct the registry or the client ID, if another one was meant", Grant: "az role assignment create --role AcrPull --assignee CLIENT_ID --scope REGISTRY_ID"},
		{Reason: reason.ClusterDenied, Service: aks, Summary: "the identity is known, but may not",
			Causes: []string{"Azure RBAC wants a role \"Azure Kubernetes Service RBAC ...\"", "the role Azure Kubernetes Service Cluster User is missing"},
			Remedy: "correct the cluster or the client ID, if another one was meant",
			Grant:  "az role assignment create --role \"Azure Kubernetes Service RBAC Reader\" --assignee CLIENT_ID --scope CLUSTER_ID"},
	}
}
