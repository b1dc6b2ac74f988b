package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cloudtest"
)

const accountID = "123456789012"

func roleOf(tenant string) string { return "arn:aws:iam::" + accountID + ":role/" + tenant }

// demo is what a controller has: one provider, one cache, a Kubernetes client.
// The rest is the cloud in the program.
type demo struct {
	provider *aws.Provider
	tokens   *cache.TokenCache
	client   auth.KubernetesClient
	cloud    *cloudtest.Cloud
	region   string
}

func newDemo(region string) (*demo, error) {
	tokens, err := cache.NewTokenCache(100)
	if err != nil {
		return nil, err
	}
	cloud, err := cloudtest.NewCloud()
	if err != nil {
		tokens.Close()
		return nil, err
	}
	return &demo{provider: &aws.Provider{}, tokens: tokens, cloud: cloud, region: region}, nil
}

func (d *demo) close() {
	d.tokens.Close()
	d.cloud.Close()
}

// credentials is the one call that a controller makes. The object is the one
// that it reconciles.
func (d *demo) credentials(ctx context.Context, serviceAccount client.ObjectKey,
	object cache.InvolvedObject) (*aws.Token, error) {
	token, err := auth.GetAccessToken(ctx, d.provider,
		auth.WithServiceAccount(serviceAccount, d.client),
		auth.WithCache(d.tokens, object),
		auth.WithSTSRegion(d.region),
		auth.WithHTTPClient(d.cloud.Client()), // only because the cloud is in this program
	)
	if err != nil {
		return nil, err
	}
	return aws.FromToken(token)
}

// row gets credentials and says what came of it.
func (d *demo) row(ctx context.Context, serviceAccount client.ObjectKey) (row, error) {
	object := cache.InvolvedObject{Kind: "Bucket", Namespace: serviceAccount.Namespace, Name: "artifacts",
		Operation: "quickstart"}
	exchanges, start := d.cloud.Calls("sts", ""), time.Now()
	token, err := d.credentials(ctx, serviceAccount, object)
	took := time.Since(start)
	if err != nil {
		return row{}, err
	}
	source := "cached"
	if d.cloud.Calls("sts", "") > exchanges {
		source = "minted"
	}
	role := token.AssumedRoleARN()
	role = role[strings.LastIndexByte(role, ':')+1:] // the whole ARN is wider than a terminal
	return row{
		tenant:  serviceAccount.Namespace,
		role:    role,
		expires: token.GetDuration().Round(time.Second).String(),
		source:  source,
		took:    took,
	}, nil
}

// table asks twice for each ServiceAccount: once for an exchange, once for the
// cache.
func (d *demo) table(ctx context.Context, p *printer, serviceAccounts ...client.ObjectKey) error {
	var rows []row
	for range 2 {
		for _, sa := range serviceAccounts {
			r, err := d.row(ctx, sa)
			if err != nil {
				return err
			}
			rows = append(rows, r)
		}
	}
	p.rows(rows)
	return nil
}

func refused(what string, err error) (refusal, error) {
	if err == nil {
		return refusal{}, fmt.Errorf("%s was not refused", what)
	}
	return refusal{what: what, message: err.Error()}, nil
}
