package main

import (
	"context"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/service/sts"
	fluxaws "github.com/fluxcd/pkg/auth/aws"
)

// kept is the reference's STS client over connections that are kept.
type kept struct {
	fluxaws.Implementation // nil: nothing else is asked for
	http                   *http.Client
}

// AssumeRoleWithWebIdentity implements fluxaws.Implementation.
func (k kept) AssumeRoleWithWebIdentity(ctx context.Context, in *sts.AssumeRoleWithWebIdentityInput,
	o sts.Options) (*sts.AssumeRoleWithWebIdentityOutput, error) {
	o.HTTPClient = k.http
	return sts.New(o).AssumeRoleWithWebIdentity(ctx, in)
}
