// Package gcptrust reads a workload identity provider and the IAM policy of a service account, for the checks 19 and 20 of
// package doctor. It uses the caller's own login (application default credentials), not that of the ServiceAccount under
// examination, and only reads:
//
//	report := doctor.Run(ctx, doctor.Config{Provider: &gcp.Provider{}, Trust: &gcptrust.Reader{}, ...})
//
// A run makes up to four calls: tokeninfo for the caller's e-mail address, the provider, its pool, and the policy. Roles
// that are granted on the project or above it are not seen.
package gcptrust
