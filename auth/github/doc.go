// Package github turns ServiceAccounts into installation tokens of a GitHub
// App, for controllers that clone repositories or call the API of GitHub as a
// tenant.
//
// GitHub never sees the ServiceAccount, so the controller decides. Its function
// [Provider.Grant] names an installation, repositories and permissions for each
// ServiceAccount. Annotations choose nothing, and a ServiceAccount without an
// answer gets nothing: the example of the package shows both.
//
// A grant tells no clusters apart: where a controller reads ServiceAccounts of
// several, each cluster has a [Provider].
//
// The provider stores no key. [Provider.Sign] learns for which ServiceAccount
// it signs. The key of a tenant's own App ([Grant.AppID]) can lie in a KMS and
// be used with that tenant's own cloud credential, of another provider.
//
// A call may ask for less with [WithRepositories] and [WithPermissions], and
// [auth.Policy.Authorize] sees as the identity what is left. Grant is asked on
// every call, also if the token is cached: a withdrawn grant counts at once. A
// token that was handed out stays valid for an hour.
//
// Before each exchange a token of the ServiceAccount is requested, with the URL
// of the API as audience. It is not sent: the API server's answer proves that
// the ServiceAccount still exists. A token in hand ([auth.WithSubjectToken])
// and one of another issuer ([auth.WithSubjectIssuer]) prove nothing and are
// refused.
//
// [auth.GetGitCredentials] serves the Git host of the API alone. ghcr.io is not
// served: GitHub does not document that it accepts installation tokens.
package github
