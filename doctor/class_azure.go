package doctor

import "github.com/workloadid/workloadid/auth"

func azureRules() []classRule {
	const p = "azure"
	return []classRule{
		{id: "Z2", provider: p, code: "AADSTS700211"},
		{id: "Z3", provider: p, code: "AADSTS700212"},
		{id: "Z4", provider: p, code: "AADSTS700213"},
		{id: "Z5", provider: p, code: "AADSTS7002138"},
		{id: "Z1", provider: p, code: "AADSTS70021"},
		{id: "Z6", provider: p, code: "AADSTS70025"},
		{id: "Z7", provider: p, code: "AADSTS700016"},
		{id: "Z7", provider: p, cause: auth.CauseIdentityMalformed},
		{id: "Z8", provider: p, code: "AADSTS90002"},
		{id: "Z9", provider: p, code: "AADSTS900023"},
		{id: "Z9", provider: p, cause: auth.CauseTargetMalformed},
		{id: "Z10", provider: p, code: "AADSTS700024"},
		{id: "Z10", provider: p, cause: auth.CauseTokenExpired},
		{id: "Z11", provider: p, code: "AADSTS7000272"},
		{id: "Z11", provider: p, code: "AADSTS50013"},
		{id: "Z12", provider: p, code: "AADSTS50166"},
		{id: "Z12", provider: p, code: "AADSTS501661"},
		{id: "Z12", provider: p, code: "AADSTS90061"},
		{id: "Z13", provider: p, code: "AADSTS500011"},
		{id: "Z13", provider: p, code: "AADSTS50001"},
		{id: "Z14", provider: p, code: "AADSTS501051"},
		{id: "Z15", provider: p, text: "combination of issuer and subject must be unique"},
		{id: "Z16", provider: p, cause: auth.CauseIdentityMissing},
		{id: "Z16", provider: p, text: "Identity not found"},
		{id: "Z18", provider: p, text: "does not have access to the resource in Azure"},
		{id: "Z18", provider: p, code: "AuthorizationFailed"},
		{id: "Z17", provider: p, text: "aka.ms/acr/authorization"},
		{id: "Z17", provider: p, text: "Application not registered with AAD"},
	}
}

func azureClasses() []Class {
	const entra, acr, aks = "Microsoft Entra ID", "Azure Container Registry", "AKS"
	const fic = "az identity federated-credential create --identity-name IDENTITY_NAME --resource-group RESOURCE_GROUP --name CREDENTIAL_NAME " +
		"--issuer ISSUER --subject SUBJECT --audiences api://AzureADTokenExchange"
	return []Class{
		{"Z1", entra, "no federated credential fits the token",
			[]string{"its issuer lacks the / at the end", "its subject names another ServiceAccount", "it belongs to another identity", "the cluster was rebuilt"}, "correct the client ID, if another identity was meant", fic},
		{"Z2", entra, "no federated credential has the token's issuer",
			[]string{"the / at the end", "the cluster was rebuilt or its issuer changed", "the cluster still has its default issuer"},
			"check that this is the cluster that was meant", "set the issuer of the federated credential to the token's iss, letter by letter"},
		{"Z3", entra, "no federated credential has the token's audience",
			[]string{"a custom audience", "an audience copied from another cloud", "a typo"},
			"use the audience api://AzureADTokenExchange for the token", "set the audience of the federated credential to the token's"},
		{"Z4", entra, "no federated credential has the token's subject",
			[]string{"another namespace or ServiceAccount", "it was created a moment ago", "of several created at once one was lost"},
			"correct the client ID, if another identity was meant", "set the subject to the token's sub; if it is equal already, wait some minutes, then create it again"},
		{"Z5", entra, "the subject differs in upper and lower case", []string{"the case of namespace or name"},
			"correct the client ID, if another identity was meant", "write the subject of the federated credential as in the token"},
		{"Z6", entra, "the identity has no federated credential", []string{"the client ID is another identity's", "it was created less than two minutes ago"}, "correct the client ID, if another identity was meant", fic},
		{"Z7", entra, "the tenant does not know the client ID",
			[]string{"it is the object ID or the resource ID", "it is in another tenant", "the identity was deleted"},
			"set azure.workload.identity/client-id to az identity show --query clientId, and tenant-id to its tenant", ""},
		{"Z8", entra, "the tenant does not exist in this cloud", []string{"a typo", "the authority of another cloud"}, "correct tenant or authority", ""},
		{"Z9", entra, "the tenant is malformed", []string{"a variable was not replaced"}, "set azure.workload.identity/tenant-id to a GUID", ""},
		{"Z10", entra, "the token is not within its time",
			[]string{"a program keeps the token and does not read the file again", "a job that runs longer than its token", "clocks differ"},
			"read the token file before each use", ""},
		{"Z11", entra, "the published keys do not hold the one that signed the token",
			[]string{"the published keys are older than the last rotation", "the token has no kid"},
			"publish the output of kubectl get --raw /openid/v1/jwks", ""},
		{"Z12", entra, "Entra cannot read the issuer's documents",
			[]string{"the issuer is not public", "a passing failure", "the OIDC endpoint of AKS is broken"},
			"make the documents public; for AKS run az aks update", ""},
		{"Z13", entra, "the resource of the scope does not exist in the tenant", []string{"a wrong scope", "the scope of another cloud"},
			"use RESOURCE/.default", ""},
		{"Z14", entra, "the application wants a role to be assigned", []string{"no role of the resource's application is assigned"}, "correct the client ID or the scope, if another one was meant", "assign the role"},
		{"Z15", "Microsoft Graph", "the federated credential exists already", []string{"another one has the same issuer and subject"}, "use that one", ""},
		{"Z16", "Azure", "no workload identity is set up, so the node's is asked for",
			[]string{`the pod lacks the label azure.workload.identity/use: "true"`, "an annotation is misspelt", "the webhook is not installed", "the pod was not restarted"},
			"correct label and annotations and restart the pod", ""},
		{"Z17", acr, "the registry refuses", []string{"the role AcrPull is missing, or was assigned less than ten minutes ago", "a token of another tenant", "the registry's network rules"},
			"correct the registry or the client ID, if another one was meant", "az role assignment create --role AcrPull --assignee CLIENT_ID --scope REGISTRY_ID"},
		{"Z18", aks, "the identity is known, but may not", []string{"Azure RBAC wants a role \"Azure Kubernetes Service RBAC ...\"", "the role Azure Kubernetes Service Cluster User is missing"},
			"correct the cluster or the client ID, if another one was meant", "az role assignment create --role \"Azure Kubernetes Service RBAC Reader\" --assignee CLIENT_ID --scope CLUSTER_ID"},
	}
}
