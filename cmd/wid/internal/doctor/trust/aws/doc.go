// Package aws examines what an AWS account trusts: the OIDC provider of the token's issuer, the trust policy of the role, and the
// access entries of an EKS cluster. A Reader asks AWS with the login of the person who runs the doctor, never with that of the
// ServiceAccount, and only reads:
//
//	reader := &aws.Reader{}
//	trust := doctor.Check{ID: "trust-rule", Run: func(ctx context.Context) doctor.Finding { return reader.Rule(ctx, query) }}
//
// Of a trust policy, the package checks StringEquals and StringLike on sub and aud of the token's issuer. A Deny, and every other
// condition, makes the finding Unknown if the result depends on it. Permission boundaries, SCPs and the ConfigMap aws-auth are
// not read.
package aws
