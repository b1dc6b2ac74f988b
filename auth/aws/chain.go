package aws

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/aws-sdk-go-v2/service/sts/types"

	"github.com/workloadid/workloadid/auth"
)

const opChainRole = "assume a further role"

// assumeRole goes on from one role to the next (role chaining).
func (p *Provider) assumeRole(ctx context.Context, from *Token, session string, role *chainedRole, opts *auth.Options,
) (*Token, error) {
	if err := p.checkPartition(role.RoleARN, opts); err != nil {
		return nil, err
	}
	client, err := p.stsClient(opts, from.provider())
	if err != nil {
		return nil, err
	}
	out, err := client.AssumeRole(ctx, role.input(session, opts))
	if err != nil {
		return nil, chainError(err, from, role)
	}
	return sessionToken(opChainRole, out.Credentials, out.AssumedRoleUser, session, time.Now())
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
			"to the first role, with this external ID if any, and give the first role that permission"
	}
	return e
}
