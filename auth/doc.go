// Package auth turns Kubernetes ServiceAccounts into short-lived credentials of
// other systems: per tenant, cached, and without a stored secret. It implements
// multi-tenant workload identity as Flux describes it in RFC-0010.
//
// A controller acts for many tenants. Each object names a ServiceAccount of its
// namespace, and the controller gets the credentials of that ServiceAccount:
//
//	provider := &aws.Provider{} // one for the whole controller: it keeps connections and what it has learned
//
//	token, err := auth.GetAccessToken(ctx, provider,
//		auth.WithServiceAccount(client.ObjectKey{Namespace: obj.Namespace, Name: obj.Spec.ServiceAccountName}, kubeClient),
//		auth.WithCache(tokenCache, cache.InvolvedObject{
//			Kind: "Bucket", Namespace: obj.Namespace, Name: obj.Name, Operation: cache.OperationReconcile}),
//	)
//
// Without [WithServiceAccount] the credential is the controller's own. Once a
// ServiceAccount is named, nothing ever falls back to that.
//
// # What a tenant cannot do
//
// A tenant writes objects and annotates ServiceAccounts, so both are treated as
// hostile. The Policy checks every call, cache hits too. Its zero value is the
// strictest: only objects of its own namespace use a ServiceAccount, and its
// token has only the audience of the provider. Before a token of the API server
// is sent anywhere, its audience, subject and expiry are checked. A token that
// the API server itself accepts is refused. Tokens print as redacted summaries.
// Callers share them and cannot change them.
//
// # What happens when something fails
//
// Errors are of type *Error, perhaps below a *cache.BackoffError: use errors.Is
// and errors.As. Their Reason says what to do next:
//
//	errors.Is(err, auth.ErrMisconfigured)  stop until something is edited; set a condition with the message
//	errors.Is(err, auth.ErrDenied)         the same, and the cached credential is gone
//	errors.Is(err, auth.ErrThrottled)      retry after auth.RetryAfter(err), a second or more
//	errors.Is(err, auth.ErrUnavailable)    the same, or with back-off if that is zero; valid cached credentials were served meanwhile
//
// The text of an error is stable from one try to the next, so that it can go
// into a condition.
//
// # Registries, clusters, Git
//
// [GetArtifactRegistryCredentials] and [NewKeychain], [GetRESTConfig] and
// [GetClusterConfig] (GetClusterConfigFromConfigMap for the ConfigMaps of
// RFC-0010), and [GetGitCredentials] take the same options. A registry, cluster
// or Git host that is not the provider's is refused before anything is asked of
// the network.
//
// # Where the ServiceAccount's token comes from
//
// From a [TokenRequest] by default, with [WithTokenLifetime] and
// [WithBoundObject]. A caller that holds a token already, or finds one in a
// file, passes it with [WithSubjectToken] and needs no Kubernetes client. With
// [WithSubjectIssuer], another issuer takes the API server's place, such as AWS
// STS (aws.WebIdentityIssuer).
//
// # Credentials that have to last
//
// [WithMinimumLifetime] renews a cached credential early, for a job that takes
// a while or a caller that keeps a credential. [Settings.MinimumLifetime] does
// so for all calls.
//
// # Credentials that a service refuses
//
// A service can refuse a credential that should still be valid: it was revoked,
// or the service lost its keys. After such a 401, call Invalidate of the
// adapter or of the Keychain, or pass [WithInvalidBefore] to the Get functions.
// The next call gets a new credential, at most every ten seconds.
// [GetClusterConfig] does so by itself.
//
// # The whole controller's settings
//
// Settings has a feature gate, default ServiceAccounts and the size of the
// cache as flags:
//
//	settings := &auth.Settings{}
//	settings.BindFlags(pflag.CommandLine)
//
// # Providers
//
// Packages aws, azure, gcp, token, exchange and github hold one each. Package
// provider says how to write another one.
package auth
