package aws

import (
	"context"
	"errors"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/workloadid/workloadid/auth/cause"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	"github.com/workloadid/workloadid/internal/redact"
)

// Rule reads the trust policy of the role, and checks whether it admits the
// token.
func (r *Reader) Rule(ctx context.Context, q doctor.TrustQuery) doctor.Finding {
	t, f := newTarget(&q)
	if t == nil {
		return f
	}
	if f = r.logIn(ctx, t.role.Partition, t.role.Account); f.Result == "" {
		f = r.rule(ctx, t)
	}
	if r.arn != "" {
		f = f.Detail("read as", r.arn)
	}
	return f
}

func (r *Reader) rule(ctx context.Context, t *target) doctor.Finding {
	out, err := iam.NewFromConfig(r.config).GetRole(ctx, &iam.GetRoleInput{RoleName: &t.role.Name})
	switch {
	case errors.As(err, new(*types.NoSuchEntityException)):
		return doctor.Failed(cause.TrustPolicyRefusesSubject, t.correctRole("Correct the annotation, or create the role:"),
			"Role %s does not exist in account %s.", t.role.Name, t.role.Account)
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
