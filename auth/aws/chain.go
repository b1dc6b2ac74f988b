package aws

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/aws-sdk-go-v2/service/sts/types"

	"github.com/workloadid/workloadid/auth"
)

const opChainRole = "assume a further role"

// GetChain returns the ARNs of the roles of WithAssumeRole.
func (*Provider) GetChain(opts *auth.Options) []string {
	var arns []string
	for role := range chain(opts) {
		arns = append(arns, role.RoleARN)
	}
	return arns
}

// GetAccessTokenOptionsForChain leaves the last role out, and with it the session duration, which is that of the last role.
func (*Provider) GetAccessTokenOptionsForChain(opts *auth.Options) []auth.Option {
	last, length := lastRole(opts)
	if last == nil {
		return nil
	}
	return []auth.Option{auth.WithProviderOption(chainLengthOption{}, length-1), auth.WithProviderOption(sessionDurationOption{}, nil)}
}

// NewChainedToken assumes the last role with the credentials of the role before it (role chaining).
func (p *Provider) NewChainedToken(ctx context.Context, previous auth.Token, opts *auth.Options) (auth.Token, error) {
	from, err := FromToken(previous)
	if err != nil {
		return nil, err
	}
	role, _ := lastRole(opts)
	if role == nil {
		return nil, self.Misconfigured("pass WithAssumeRole", "there is no further role to assume")
	}
	if err := p.checkPartition(role.RoleARN, opts); err != nil {
		return nil, err
	}
	client, err := p.stsClient(opts, from.provider())
	if err != nil {
		return nil, err
	}
	session := firstNonEmpty(role.SessionName, defaultSession(opts))
	out, err := client.AssumeRole(ctx, role.input(session, opts))
	if err != nil {
		return nil, chainError(err, from, role)
	}
	return p.sessionToken(opChainRole, out.Credentials, out.AssumedRoleUser, session, opts)
}

// RefusesPrevious knows the codes with which STS refuses the credentials that have signed the request.
func (*Provider) RefusesPrevious(err error) bool {
	var known *auth.Error
	return errors.As(err, &known) && (known.Code == "InvalidClientTokenId" || known.Code == "ExpiredToken")
}

// provider is for one request, in which the credentials do not change.
func (t *Token) provider() aws.CredentialsProvider {
	return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return t.Credentials(), nil })
}

// secrets are what no message may repeat.
func (t *Token) secrets() []string {
	p := t.parts(partCount)
	return []string{p[partSecret], p[partSessionToken]}
}

func (r *chainedRole) input(session string, opts *auth.Options) *sts.AssumeRoleInput {
	in := &sts.AssumeRoleInput{
		RoleArn:           &r.RoleARN,
		RoleSessionName:   &session,
		DurationSeconds:   durationSeconds(opts),
		TransitiveTagKeys: r.TransitiveTagKeys,
		ExternalId:        optional(r.ExternalID),
		SourceIdentity:    optional(r.SourceIdentity),
		Policy:            optional(r.Policy),
	}
	for _, key := range sortedKeys(r.Tags) {
		in.Tags = append(in.Tags, types.Tag{Key: aws.String(key), Value: aws.String(r.Tags[key])})
	}
	return in
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func chainError(err error, from *Token, role *chainedRole) error {
	e := classify(err, opChainRole, from.secrets()...)
	e.Message = fmt.Sprintf("role %q: %s", role.RoleARN, e.Message)
	if e.Code == "AccessDenied" {
		e.Remedy = "let the role's trust policy allow sts:AssumeRole (and sts:TagSession and sts:SetSourceIdentity where used) " +
			"to the role before it, with this external ID if any, and give that role the permission"
	}
	return e
}
