// Package azure turns ServiceAccounts into credentials of Microsoft Azure. A
// ServiceAccount uses the federated credentials of an application or a managed
// identity (Microsoft Entra Workload ID). The controller itself uses the SDK's
// own credentials.
//
// A tenant names the application or managed identity on a ServiceAccount:
//
//	metadata:
//	  annotations:
//	    azure.workload.identity/client-id: d6e4fc00-c5b2-4a72-9f84-6a92e3f06b08
//	    azure.workload.identity/tenant-id: 72f988bf-86f1-41af-91ab-2d7cd011db47 # optional, else AZURE_TENANT_ID
//
// and adds a federated credential to it, with the cluster's issuer, the subject
// system:serviceaccount:tenant-a:app and the audience
// api://AzureADTokenExchange. Other clouds have other audiences, see
// [DefaultAudience].
//
// The controller passes the credentials to any client of the Azure SDK:
//
//	provider := &azure.Provider{} // one for the whole controller
//
//	credential := provider.NewTokenCredential(
//		auth.WithServiceAccount(client.ObjectKey{Namespace: "tenant-a", Name: "app"}, kubeClient),
//		auth.WithCache(tokenCache, object))
//	blobs, err := azblob.NewClient("https://account.blob.core.windows.net", credential, nil)
//
// # Clouds
//
// The authority is the host of the token service and selects one of Microsoft's
// clouds. It comes from [WithAuthorityHost], else from the Provider, else from
// the environment variable AZURE_AUTHORITY_HOST. The default is the public
// cloud's. Azure Resource Manager, the default scope, the container registries
// and the audience of the ServiceAccount's token belong to the same cloud. One
// process can use several clouds.
//
// [Provider.PrivateClouds] or the file of AZURE_ENVIRONMENT_FILEPATH describes
// private clouds. The file is a JSON object with activeDirectoryEndpoint,
// resourceManagerEndpoint, tokenAudience and containerRegistryDNSSuffix.
// Without activeDirectoryEndpoint the authority is AZURE_AUTHORITY_HOST, else
// the public one. A private cloud with the authority of one of Microsoft's
// clouds keeps the registries of that cloud, and every address that it does not
// replace.
//
// # Identity bindings
//
// [Provider.IdentityBindings] uses the identity bindings of AKS instead of
// federated credentials. AKS describes the token proxy of the cluster in pods
// with the annotation azure.workload.identity/use-identity-binding: the https
// address AZURE_KUBERNETES_TOKEN_PROXY, its TLS server name
// AZURE_KUBERNETES_SNI_NAME, and its CA in PEM, in the file
// AZURE_KUBERNETES_CA_FILE or in AZURE_KUBERNETES_CA_DATA. ServiceAccounts need
// the verb use-managed-identity in the API group cid.wi.aks.azure.com on the
// client ID. See docs/providers.md.
//
// # Registries, clusters, Git
//
// auth.GetArtifactRegistryCredentials accepts <registry>.azurecr.io, its
// replicas <registry>.<region>.geo.azurecr.io, and the registries of the other
// clouds. The identity needs the role AcrPull, or Container Registry Repository
// Reader in a registry with ABAC repository permissions.
//
// auth.GetRESTConfig accepts AKS clusters with Microsoft Entra integration by
// their resource ID. The identity needs the role Azure Kubernetes Service
// Cluster User Role, which can read the cluster too, and permissions in the
// cluster itself.
//
// auth.GetGitCredentials accepts Azure DevOps of the public cloud:
// dev.azure.com and <organization>.visualstudio.com. It ignores the user name
// in a clone URL.
//
// # Scopes
//
// Access tokens have the scopes of auth.WithScopes, else the scope of Azure
// Resource Manager. A token has one resource.
package azure
