// Package github turns ServiceAccounts into installation tokens of a GitHub
// App, for controllers that clone repositories or call the API of GitHub as a
// tenant.
//
// GitHub never sees the ServiceAccount, so the controller decides. Its function
// [Provider.Grant] names an installation, repositories and permissions for each
// ServiceAccount. Annotations choose nothing, and a ServiceAccount without a
// grant gets nothing. The example of the package shows both.
//
// A grant does not identify the cluster. A controller that reads
// ServiceAccounts of several clusters needs a [Provider] for each.
//
// The provider stores no key. [Provider.Sign] receives the ServiceAccount for
// which it signs. The key of a tenant's own App ([Grant.AppID]) can stay in a
// KMS, and Sign can reach it with the tenant's own cloud credential of another
// provider.
//
// A call may ask for less with [WithRepositories] and [WithPermissions].
// [auth.Policy.Authorize] sees the narrowed grant as the identity. Every call
// asks Grant, even if the token is cached, so withdrawing a grant takes effect
// at once. A token that was already handed out stays valid for an hour.
//
// Before each exchange, auth requests a token of the ServiceAccount, with the
// URL of the API as audience. It is not sent: the API server's answer proves
// that the ServiceAccount still exists. The provider refuses a token in hand
// ([auth.WithSubjectToken]) and one of another issuer
// ([auth.WithSubjectIssuer]), because they prove nothing.
//
// [auth.GetGitCredentials] serves only the Git host of the API. It does not
// serve ghcr.io, because GitHub does not document that it accepts installation
// tokens.
package github
