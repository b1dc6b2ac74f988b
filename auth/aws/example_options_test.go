package aws_test

import (
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
)

// Clients of AWS in a customer's account, such as one of KMS, through a role
// that the customer lets ours assume.
func ExampleWithAssumeRole() {
	config := func(provider *aws.Provider, opts []auth.Option) sdk.Config {
		credentials := provider.NewCredentialsProvider(append(opts, aws.WithSessionDuration(15*time.Minute),
			aws.WithAssumeRole(aws.AssumeRole{
				RoleARN:    "arn:aws:iam::210987654321:role/gitops-decrypt",
				ExternalID: "the customer's number with us",
				Tags:       map[string]string{"cluster": "prod"},
			}))...)
		return sdk.Config{Region: "eu-central-1", Credentials: credentials} // for kms.NewFromConfig
	}
	_ = config
}

// A bucket whose spec names the role: its value wins over the annotation of the
// ServiceAccount.
func Example_roleOfTheCaller() {
	type spec struct{ RoleARN string }
	credentials := func(provider *aws.Provider, s spec, opts []auth.Option) *aws.CredentialsProvider {
		if s.RoleARN != "" {
			opts = append(opts, auth.WithAnnotations(map[string]string{aws.RoleARNAnnotation: s.RoleARN}))
		}
		return provider.NewCredentialsProvider(opts...)
	}
	_ = credentials
}
