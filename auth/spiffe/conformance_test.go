package spiffe_test

import (
	"testing"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// The contract of providers holds with JWT-SVIDs as subject tokens. The agent
// issues none for the ServiceAccount "stranger".
func TestConformance(t *testing.T) {
	w := newEnvironment(t, testenv.ServiceAccount("tenant-b", "stranger", aws.RoleARNAnnotation, role("tenant-a")),
		testenv.ServiceAccount("tenant-a", "bad", aws.RoleARNAnnotation, "app"))
	w.agent.Register(key("tenant-a", "bad"), idOf("tenant-a", "bad"))
	authtest.RunConformance(t, authtest.Harness{
		New: func(*testing.T) auth.Provider { return &aws.Provider{} },
		// A source changes nothing about the fields, which auth/aws tests.
		Fields: map[string]any{"AllowedSTSHosts": nil, "STSAudiences": nil, "UseFIPSEndpoint": nil,
			"UseDualStackEndpoint": nil},
		Options: []auth.Option{auth.WithHTTPClient(w.Cloud.Client()), auth.WithSTSRegion("eu-central-1")},
		Client:  w.Client, Source: w.source,
		Good: key("tenant-a", "app"), Other: key("tenant-b", "app"), Refused: key("tenant-b", "stranger"),
		Malformed: key("tenant-a", "bad"), Repository: account + ".dkr.ecr.eu-central-1.amazonaws.com/app",
		Break: w.Break,
		Calls: func() int { return w.Cloud.Calls("", "") },
		Secrets: func(t *testing.T, token auth.Token) []string {
			own, err := aws.FromToken(token)
			if err != nil {
				t.Fatal(err)
			}
			return []string{own.Credentials().SecretAccessKey, own.Credentials().SessionToken}
		},
	})
}
