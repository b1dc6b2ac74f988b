// Package azure examines what Microsoft Entra ID trusts: the federated credentials of a managed identity or an application. A Reader
// asks Azure with the login of the person who runs the doctor, never with that of the ServiceAccount, and only reads:
//
//	reader := &azure.Reader{}
//	trust := doctor.Check{ID: "trust-anchor", Run: func(ctx context.Context) doctor.Finding { return reader.Anchor(ctx, query) }}
//
// Parse takes what the command line of Azure prints instead.
//
// Issuer, subject and audience are compared exactly. A credential that matches by an expression makes the finding Unknown if no other
// one fits.
package azure
