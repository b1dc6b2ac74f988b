//go:build linux

package main

import (
	"context"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"k8s.io/client-go/rest"

	awsauth "github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cloudtest"
)

const roleARN = "arn:aws:iam::" + account + ":role/"

// trustIssuer registers the cluster's issuer in IAM, as for IAM roles for
// service accounts.
func (c *cluster) trustIssuer() error {
	fetch, err := rest.HTTPClientFor(rest.AnonymousClientConfig(c.config))
	if err != nil {
		return err
	}
	c.cloud.AWS().AddOIDCProvider(account, issuer, fetch, awsauth.DefaultAudience)
	return nil
}

// trustServiceAccount makes a role that a ServiceAccount assumes with its
// token.
func (c *cluster) trustServiceAccount(role, namespace, name string) {
	c.cloud.AWS().SetRole(roleARN+role,
		cloudtest.Trust{Issuer: issuer, Subjects: []string{"system:serviceaccount:" + namespace + ":" + name}})
}

// createRole creates a role with a trust policy through the API of IAM.
func (c *cluster) createRole(ctx context.Context, role, trustPolicy string) error {
	id, secret := c.cloud.AWS().AddUser(account, "administrator")
	path, name := "/", role
	if i := strings.LastIndexByte(role, '/'); i >= 0 {
		path, name = "/"+role[:i+1], role[i+1:]
	}
	api := iam.New(iam.Options{Region: "us-east-1", HTTPClient: c.cloud.Client(),
		Credentials: credentials.NewStaticCredentialsProvider(id, secret, "")})
	_, err := api.CreateRole(ctx,
		&iam.CreateRoleInput{RoleName: aws.String(name), Path: aws.String(path),
			AssumeRolePolicyDocument: aws.String(trustPolicy)})
	return err
}
