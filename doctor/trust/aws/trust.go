package aws

import (
	"context"
	"errors"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"

	awsauth "github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/reading"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/shell"
)

// Anchor reads the OIDC provider of the role's account for the token's issuer.
func (r *Reader) Anchor(ctx context.Context, q doctor.TrustQuery) doctor.Finding {
	t, f := r.target(ctx, &q)
	if f != nil {
		return *f
	}
	if !strings.HasPrefix(q.Claims.Issuer, "https://") {
		return doctor.Skipped("An account cannot trust an issuer without https.")
	}
	providers, f := r.providers(ctx, t)
	if f == nil {
		judged := t.judgeAnchor(providers)
		f = &judged
	}
	return f.Detail("read as", r.arn)
}

// Rule reads the trust policy of the role.
func (r *Reader) Rule(ctx context.Context, q doctor.TrustQuery) doctor.Finding {
	t, f := r.target(ctx, &q)
	if f != nil {
		return *f
	}
	policy, f := r.policy(ctx, t)
	if f == nil {
		judged := t.judgePolicy(policy)
		f = &judged
	}
	return f.Detail("read as", r.arn)
}

// target parses the role, and logs in.
func (r *Reader) target(ctx context.Context, q *doctor.TrustQuery) (*target, *doctor.Finding) {
	t, f := newTarget(q)
	if f == nil {
		f = r.start(ctx, t.role.Partition, t.role.Account)
	}
	return t, f
}

func (r *Reader) question(right, resource, show string) *reading.Question {
	return &reading.Question{Service: iamName, Right: right, Resource: resource, Show: show, Login: r.arn, Secrets: r.secrets}
}

func (r *Reader) policy(ctx context.Context, t *target) ([]byte, *doctor.Finding) {
	q := r.question("iam:GetRole", t.role.String(), t.showRole())
	out, err := iam.NewFromConfig(r.config).GetRole(ctx, &iam.GetRoleInput{RoleName: &t.role.Name})
	var missing *types.NoSuchEntityException
	var f doctor.Finding
	switch {
	case errors.As(err, &missing):
		f = t.noRole()
	case err != nil:
		f = explain(err, q)
	case out.Role == nil || aws.ToString(out.Role.AssumeRolePolicyDocument) == "":
		f = q.Strange()
	case aws.ToString(out.Role.Arn) != t.role.String():
		f = t.otherPath(redact.Text(aws.ToString(out.Role.Arn), r.secrets...))
	default:
		policy, err := url.PathUnescape(*out.Role.AssumeRolePolicyDocument) // RFC 3986
		if err == nil {
			return []byte(policy), nil
		}
		f = q.Strange()
	}
	return nil, &f
}

// provider is an OIDC provider of the account, without its https://. clientIDs is nil if it was only listed.
type provider struct {
	url       string
	clientIDs []string
}

// providers returns the provider of the issuer, or all others if there is none.
func (r *Reader) providers(ctx context.Context, t *target) ([]provider, *doctor.Finding) {
	arn := t.providerARN()
	q := r.question("iam:GetOpenIDConnectProvider", arn, t.showProvider())
	client := iam.NewFromConfig(r.config)
	out, err := client.GetOpenIDConnectProvider(ctx, &iam.GetOpenIDConnectProviderInput{OpenIDConnectProviderArn: &arn})
	var missing *types.NoSuchEntityException
	var f doctor.Finding
	switch {
	case errors.As(err, &missing):
		return r.otherProviders(ctx, client), nil
	case err != nil:
		f = explain(err, q)
	case out.Url == nil:
		f = q.Strange()
	default:
		return []provider{{strings.TrimPrefix(*out.Url, "https://"), out.ClientIDList}}, nil
	}
	return nil, &f
}

// otherProviders is for near misses only, so an error does not matter. The list of IAM has no pages.
func (r *Reader) otherProviders(ctx context.Context, client *iam.Client) (list []provider) {
	out, err := client.ListOpenIDConnectProviders(ctx, &iam.ListOpenIDConnectProvidersInput{})
	if err != nil {
		return nil
	}
	for _, p := range out.OpenIDConnectProviderList {
		if _, name, ok := strings.Cut(aws.ToString(p.Arn), ":oidc-provider/"); ok {
			list = append(list, provider{url: name})
		}
	}
	return list
}

// target is the role, and the token that should be able to assume it.
type target struct {
	*doctor.TrustQuery

	role awsauth.RoleARN
	host string // the issuer without https://
}

func newTarget(q *doctor.TrustQuery) (*target, *doctor.Finding) {
	role, err := awsauth.ParseRoleARN(q.Identity)
	if err != nil {
		f := doctor.Skipped("The identity is not the ARN of a role.")
		return nil, &f
	}
	return &target{q, role, strings.TrimPrefix(q.Claims.Issuer, "https://")}, nil
}

func (t *target) providerARN() string {
	return "arn:" + t.role.Partition + ":iam::" + t.role.Account + ":oidc-provider/" + t.host
}

func (t *target) showRole() string {
	return "aws iam get-role --role-name " + shell.Word(t.role.Name, "ROLE_NAME")
}

func (t *target) showProvider() string {
	return "aws iam get-open-id-connect-provider --open-id-connect-provider-arn " + shell.Word(t.providerARN(), "PROVIDER_ARN")
}
