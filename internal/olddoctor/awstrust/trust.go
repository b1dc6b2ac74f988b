package awstrust

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/workloadid/workloadid/auth"
	awsauth "github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/internal/olddoctor"
)

// ReadTrust reads the trust policy of the role, and the OIDC provider of the role's account for the token's issuer.
func (r *Reader) ReadTrust(ctx context.Context, query doctor.TrustQuery) (*doctor.Trust, error) {
	role, err := awsauth.ParseRoleARN(query.Identity)
	if err != nil {
		return nil, fmt.Errorf("the identity is not the ARN of a role: %w", err)
	}
	cfg, err := r.in(ctx, regionOf(ctx, role.Partition))
	if err != nil {
		return nil, err
	}
	me, err := r.whoAmI(ctx, cfg, role.Account, "the role "+role.Name)
	if err != nil {
		return nil, err
	}
	client := iam.NewFromConfig(cfg)
	t := &doctor.Trust{ReadBy: me.arn}
	t.Policy, t.RuleErr = readPolicy(ctx, client, me, role)
	t.Anchors, t.AnchorErr = readProvider(ctx, client, me, role, query.Claims)
	return t, nil
}

func readPolicy(ctx context.Context, client *iam.Client, me caller, role awsauth.RoleARN) ([]byte, error) {
	asked := request{service: "AWS IAM", action: "iam:GetRole", resource: role.String(), who: me.arn, secrets: me.secrets,
		show: "aws iam get-role --role-name " + quoted(role.Name), missing: fmt.Sprintf("the role %q does not exist in account %s", role.Name, role.Account),
		create: "correct the annotation " + awsauth.RoleARNAnnotation + ", or create the role"}
	out, err := client.GetRole(ctx, &iam.GetRoleInput{RoleName: &role.Name})
	if err != nil {
		return nil, explain(err, asked)
	}
	if out.Role == nil || aws.ToString(out.Role.AssumeRolePolicyDocument) == "" {
		return nil, strange(asked)
	}
	if arn := aws.ToString(out.Role.Arn); arn != role.String() {
		return nil, &auth.Error{Provider: "aws", Reason: auth.ErrMisconfigured, Err: doctor.ErrMissing,
			Message: fmt.Sprintf("the account has no role %q; it has %.600q", role.String(), arn),
			Remedy:  "correct the path of the role in the annotation " + awsauth.RoleARNAnnotation}
	}
	// IAM hands out policies in percent-encoding (RFC 3986).
	decoded, err := url.PathUnescape(*out.Role.AssumeRolePolicyDocument)
	if err != nil {
		return nil, strange(asked)
	}
	return []byte(decoded), nil
}

// maxIssuer is the longest URL that an OIDC provider can have.
const maxIssuer = 255

// readProvider asks for the one that the issuer would have. If there is none, it names those that there are.
func readProvider(ctx context.Context, client *iam.Client, me caller, role awsauth.RoleARN, claims *doctor.Claims) ([]doctor.Anchor, error) {
	host, ok := strings.CutPrefix(claims.Issuer, "https://")
	if !ok || host == "" || len(claims.Issuer) > maxIssuer {
		return nil, &auth.Error{Provider: "aws", Reason: auth.ErrMisconfigured,
			Message: fmt.Sprintf("an account cannot have an OIDC provider for the issuer %.300q", claims.Issuer),
			Remedy:  "give the cluster an issuer with https"}
	}
	arn := "arn:" + role.Partition + ":iam::" + role.Account + ":oidc-provider/" + host
	asked := request{service: "AWS IAM", action: "iam:GetOpenIDConnectProvider", resource: arn, who: me.arn, secrets: me.secrets,
		show: "aws iam get-open-id-connect-provider --open-id-connect-provider-arn " + quoted(arn)}
	out, err := client.GetOpenIDConnectProvider(ctx, &iam.GetOpenIDConnectProviderInput{OpenIDConnectProviderArn: &arn})
	var missing *types.NoSuchEntityException
	switch {
	case errors.As(err, &missing):
		return listProviders(ctx, client, me)
	case err != nil:
		return nil, explain(err, asked)
	case out.Url == nil:
		return nil, strange(asked)
	}
	return []doctor.Anchor{{Name: arn, Issuer: withScheme(*out.Url), Audiences: out.ClientIDList}}, nil
}

// listProviders is for the near misses only: that there is none for the issuer is known. An account has a hundred at most,
// unless it was allowed more, and the list has no pages.
func listProviders(ctx context.Context, client *iam.Client, me caller) ([]doctor.Anchor, error) {
	anchors := []doctor.Anchor{}
	out, err := client.ListOpenIDConnectProviders(ctx, &iam.ListOpenIDConnectProvidersInput{})
	if err != nil {
		return anchors, explain(err, request{service: "AWS IAM", action: "iam:ListOpenIDConnectProviders", resource: "*",
			who: me.arn, secrets: me.secrets,
			show: "aws iam list-open-id-connect-providers"})
	}
	for _, p := range out.OpenIDConnectProviderList {
		arn := aws.ToString(p.Arn)
		if _, name, ok := strings.Cut(arn, ":oidc-provider/"); ok {
			anchors = append(anchors, doctor.Anchor{Name: arn, Issuer: withScheme(name)})
		}
	}
	return anchors, nil
}

func withScheme(u string) string {
	if strings.Contains(u, "://") {
		return u
	}
	return "https://" + u
}
