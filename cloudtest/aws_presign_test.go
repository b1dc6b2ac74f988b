package cloudtest_test

import (
	"context"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/sts"
)

// withHeader signs one more header in, as aws-iam-authenticator does.
type withHeader struct {
	sts.HTTPPresignerV4
	cluster string
}

func (p withHeader) PresignHTTP(ctx context.Context, creds aws.Credentials, r *http.Request, payloadHash, service,
	region string, at time.Time, opts ...func(*v4.SignerOptions)) (string, http.Header, error) {
	q := r.URL.Query()
	q.Set("X-Amz-Expires", "900")
	r.URL.RawQuery = q.Encode()
	if p.cluster != "" {
		r.Header.Set("x-k8s-aws-id", p.cluster)
	}
	return p.HTTPPresignerV4.PresignHTTP(ctx, creds, r, payloadHash, service, region, at, opts...)
}
