// Package azuretrust reads the federated credentials of a managed identity or an application, for check 19 of package
// doctor. It uses the caller's own login, not that of the ServiceAccount under examination, and only reads:
//
//	report := doctor.Run(ctx, doctor.Config{Provider: &azure.Provider{}, Trust: &azuretrust.Reader{}, ...})
//
// Azure Resource Graph is asked for the managed identity with the client ID, and Azure Resource Manager for its federated
// credentials; if there is none that the login can see, Microsoft Graph is asked for those of the application. That makes
// two to five calls.
package azuretrust
