// Package gcp turns ServiceAccounts into access tokens of Google Cloud: through
// Workload Identity Federation for a ServiceAccount, in GKE and anywhere else,
// and through application default credentials for the controller itself.
//
// In GKE a ServiceAccount needs no annotation. IAM grants its access to
//
//	principal://iam.googleapis.com/projects/<number>/locations/global/workloadIdentityPools/<project>.svc.id.goog/subject/ns/tenant-a/sa/app
//
// In any other cluster it names a workload identity provider that trusts the
// cluster's issuer:
//
//	metadata:
//	  annotations:
//	    gcp.auth.fluxcd.io/workload-identity-provider: projects/123456789012/locations/global/workloadIdentityPools/east/providers/east
//
// and IAM grants its access to
//
//	principal://iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/east/subject/system:serviceaccount:tenant-a:app
//
// The principal names the pool, not the provider. Give each cluster a pool of
// its own: in a shared pool, the ServiceAccounts tenant-a/app of all its
// clusters are one principal.
//
// In both it can impersonate a service account, which has to grant that
// principal the role roles/iam.workloadIdentityUser:
//
//	iam.gke.io/gcp-service-account: app@project.iam.gserviceaccount.com
//
// The controller passes the credentials to any client of Google's SDKs:
//
//	provider := &gcp.Provider{} // one for the whole controller
//
//	credentials := provider.NewCredentials(
//		auth.WithServiceAccount(client.ObjectKey{Namespace: "tenant-a", Name: "app"}, kubeClient),
//		auth.WithCache(tokenCache, object))
//	bucket, err := storage.NewClient(ctx, option.WithAuthCredentials(credentials.Credentials))
//
// The scopes come from auth.WithScopes, else they are cloud-platform and
// userinfo.email. The audience of the ServiceAccount's token is the full
// resource name of the provider, //iam.googleapis.com/projects/... A provider
// accepts it by default. If the provider has a list of allowed audiences, add
// it there. A call for a ServiceAccount reads only GCE_METADATA_HOST from the
// environment.
package gcp
