package server_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/auth/podidentity/server"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/testing/testworld"
)

func ExampleTrustPolicy() {
	binding := &v1alpha1.IAMBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "reports"},
		Spec: v1alpha1.IAMBindingSpec{
			AWS:               v1alpha1.AWSRole{RoleARN: "arn:aws:iam::123456789012:role/S3Access"},
			ServiceAccountRef: v1alpha1.ServiceAccountReference{Name: "reporting-app"},
		},
	}
	policy, err := server.TrustPolicy("prod", "arn:aws:iam::123456789012:role/pod-identity", binding)
	if err != nil {
		fmt.Println(err)
	}
	fmt.Print(string(policy))
	// Output:
	// {
	//   "Version": "2012-10-17",
	//   "Statement": [
	//     {
	//       "Effect": "Allow",
	//       "Principal": {
	//         "AWS": "arn:aws:iam::123456789012:role/pod-identity"
	//       },
	//       "Action": "sts:AssumeRole",
	//       "Condition": {
	//         "StringEquals": {
	//           "sts:RoleSessionName": "prod.team-a.reporting-app"
	//         }
	//       }
	//     },
	//     {
	//       "Effect": "Allow",
	//       "Principal": {
	//         "AWS": "arn:aws:iam::123456789012:role/pod-identity"
	//       },
	//       "Action": "sts:TagSession",
	//       "Condition": {
	//         "StringEquals": {
	//           "aws:RequestTag/cluster": "prod",
	//           "aws:RequestTag/kubernetes-namespace": "team-a",
	//           "aws:RequestTag/kubernetes-service-account": "reporting-app"
	//         }
	//       }
	//     }
	//   ]
	// }
}

func TestNewRefusesOptions(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*server.Options)
		want   string
	}{
		"no client":   {func(o *server.Options) { o.Client = nil }, "Options.Client"},
		"no audience": {func(o *server.Options) { o.Audience = "" }, "Options.Audience"},
		"no cache":    {func(o *server.Options) { o.Cache = nil }, "Options.Cache"},
		"no cluster":  {func(o *server.Options) { o.Cluster = "" }, "Options.Cluster"},
		"an STS that is not AWS's": {func(o *server.Options) {
			o.AuthOptions = []auth.Option{auth.WithSTSEndpoint("https://minio.example.com")}
			o.Provider = &aws.Provider{AllowedSTSHosts: []string{"minio.example.com"}}
		}, `"https://minio.example.com"`},
		"a cluster with a dot":       {func(o *server.Options) { o.Cluster = "a.b" }, `Options.Cluster "a.b"`},
		"a cluster in upper case":    {func(o *server.Options) { o.Cluster = "Prod" }, `Options.Cluster "Prod"`},
		"a cluster that is too long": {func(o *server.Options) { o.Cluster = strings.Repeat("a", 64) }, "Options.Cluster"},
		"a cache without capacity":   {func(o *server.Options) { o.Cache = emptyCache(t) }, "Options.Cache"},
	} {
		t.Run(name, func(t *testing.T) {
			options := server.Options{Client: fake.NewClientBuilder().Build(), Audience: audience, Cluster: "prod", Cache: testworld.Cache(t)}
			test.change(&options)
			if _, err := server.New(options); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestNewAcceptsAnEndpointOfAWS(t *testing.T) {
	for _, endpoint := range []string{"https://sts.eu-central-1.amazonaws.com", "https://vpce-0abc123def4567890-ab12cd34.sts.eu-central-1.vpce.amazonaws.com"} {
		options := server.Options{Client: fake.NewClientBuilder().Build(), Audience: audience, Cluster: "prod", Cache: testworld.Cache(t),
			AuthOptions: []auth.Option{auth.WithSTSEndpoint(endpoint)}}
		if _, err := server.New(options); err != nil {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
}

func emptyCache(t *testing.T) *cache.TokenCache {
	t.Helper()
	c, err := cache.NewTokenCache(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
