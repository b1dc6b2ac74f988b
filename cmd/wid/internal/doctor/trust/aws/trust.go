package aws

import (
	"context"
	"errors"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	"github.com/workloadid/workloadid/internal/redact"
)

// Anchor reads the OIDC provider of the role's account for the token's issuer.
func (r *Reader) Anchor(ctx context.Context, q doctor.TrustQuery) doctor.Finding {
	return r.examine(ctx, &q, r.anchor)
}

// Rule reads the trust policy of the role.
func (r *Reader) Rule(ctx context.Context, q doctor.TrustQuery) doctor.Finding {
	return r.examine(ctx, &q, r.rule)
}

func (r *Reader) examine(ctx context.Context, q *doctor.TrustQuery, check func(context.Context, *target) doctor.Finding) doctor.Finding {
	t, f := newTarget(q)
	if t == nil {
		return f
	}
	return r.ask(ctx, t.role.Partition, t.role.Account, func() doctor.Finding { return check(ctx, t) })
}

func (r *Reader) anchor(ctx context.Context, t *target) doctor.Finding {
	arn := t.providerARN()
	out, err := iam.NewFromConfig(r.config).GetOpenIDConnectProvider(ctx, &iam.GetOpenIDConnectProviderInput{OpenIDConnectProviderArn: &arn})
	switch {
	case errors.As(err, new(*types.NoSuchEntityException)):
		return t.noProvider()
	case err != nil:
		return r.explain(err, "iam:GetOpenIDConnectProvider", t.showProvider())
	case out.Url == nil:
		return r.unusable(nil, 0, "")
	}
	return t.checkAudience(out.ClientIDList)
}

func (r *Reader) rule(ctx context.Context, t *target) doctor.Finding {
	out, err := iam.NewFromConfig(r.config).GetRole(ctx, &iam.GetRoleInput{RoleName: &t.role.Name})
	switch {
	case errors.As(err, new(*types.NoSuchEntityException)):
		return t.noRole()
	case err != nil:
		return r.explain(err, "iam:GetRole", t.showRole())
	case out.Role == nil || aws.ToString(out.Role.AssumeRolePolicyDocument) == "":
		return r.unusable(nil, 0, "")
	case aws.ToString(out.Role.Arn) != t.role.String():
		return t.otherPath(redact.Text(aws.ToString(out.Role.Arn), r.secrets...))
	}
	policy, err := url.PathUnescape(*out.Role.AssumeRolePolicyDocument) // RFC 3986
	if err != nil {
		return r.unusable(nil, 0, "")
	}
	return t.checkPolicy([]byte(policy))
}
