// Package gcp examines what Google Cloud trusts: a workload identity provider, its pool, and the IAM policy of a service account. A
// Reader asks Google with the login of the person who runs the doctor, never with that of the ServiceAccount, and only reads:
//
//	reader := &gcp.Reader{}
//	trust := doctor.Check{ID: "trust-rule", Run: func(ctx context.Context) doctor.Finding { return reader.Rule(ctx, query) }}
//
// Parse takes what gcloud prints instead.
//
// Of an attribute mapping, the package judges google.subject=assertion.sub. Every other mapping of it, an attribute condition, a
// conditional binding and a member that is named by an attribute make the finding Unknown if the result depends on them. Roles on
// the project or above it are not read.
package gcp
