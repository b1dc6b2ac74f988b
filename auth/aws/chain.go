package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/aws-sdk-go-v2/service/sts/types"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
)

const opChainRole = "assume a further role"

// GetChain returns the ARNs of the roles of WithAssumeRole.
func (*Provider) GetChain(opts *provider.Options) []string {
	var arns []string
	for role := range chain(opts) {
		arns = append(arns, role.RoleARN)
	}
	return arns
}

// GetAccessTokenOptionsForChain leaves out the last role and the session duration, which applies to the last role.
func (*Provider) GetAccessTokenOptionsForChain(opts *provider.Options) []provider.Option {
	last, length := lastRole(opts)
	if last == nil {
		return nil
	}
	return []provider.Option{provider.WithOption(chainLengthOption{}, length-1), provider.WithOption(sessionDurationOption{}, nil)}
}

// NewChainedToken assumes the last role with the credentials of the role before it (role chaining).
func (p *Provider) NewChainedToken(ctx context.Context, previous auth.Token, opts *provider.Options) (auth.Token, error) {
	from, err := FromToken(previous)
	if err != nil {
		return nil, err
	}
	role, _ := lastRole(opts)
	if role == nil {
		return nil, self.Misconfigured("name one", "there is no further role to assume").About(optionAssumeRole)
	}
	if err := p.checkPartition(role.RoleARN, opts); err != nil {
		return nil, err
	}
	session := cmp.Or(role.SessionName, defaultSession(opts))
	out, err := p.stsClient(opts, from.provider()).AssumeRole(ctx, role.input(session, opts))
	if err != nil {
		return nil, chainError(err, from, role)
	}
	return p.sessionToken(opChainRole, out.Credentials, out.AssumedRoleUser, session, opts)
}

// RefusesPrevious recognizes the codes of STS for a refused signature.
func (*Provider) RefusesPrevious(err error) bool {
	var known *auth.Error
	return errors.As(err, &known) && (known.Code == "InvalidClientTokenId" || known.Code == "ExpiredToken")
}

// provider serves one request.
func (t *Token) provider() aws.CredentialsProvider {
	return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return t.Credentials(), nil })
}

// secrets returns the parts that no message may repeat.
func (t *Token) secrets() []string {
	p := t.parts(partCount)
	return []string{p[partSecret], p[partSessionToken]}
}

func (r *chainedRole) input(session string, opts *provider.Options) *sts.AssumeRoleInput {
	in := &sts.AssumeRoleInput{
		RoleArn:           &r.RoleARN,
		RoleSessionName:   &session,
		DurationSeconds:   durationSeconds(opts),
		TransitiveTagKeys: r.TransitiveTagKeys,
		ExternalId:        optional(r.ExternalID),
		SourceIdentity:    optional(r.SourceIdentity),
		Policy:            optional(r.Policy),
	}
	for _, key := range slices.Sorted(maps.Keys(r.Tags)) {
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
