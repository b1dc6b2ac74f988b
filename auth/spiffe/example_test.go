package spiffe_test

import (
	"context"
	"fmt"
	"log"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/spiffe"
	"github.com/workloadid/workloadid/auth/spiffe/spiffetest"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cloudtest"
)

// Tenants makes the issuer of a controller, one for all tenants. The agent is
// at SPIFFE_ENDPOINT_SOCKET and at SPIFFE_BROKER_SOCKET. The caller ends it
// with stop, when no call uses the issuer any more.
func Tenants(ctx context.Context) (issuer *spiffe.BrokerIssuer, stop func(), err error) {
	trustDomain := spiffeid.RequireTrustDomainFromString("example.org")
	x509, err := workloadapi.NewX509Source(ctx) // the controller's own X.509-SVID; waits for the agent
	if err != nil {
		return nil, nil, err
	}
	agents := spiffeid.RequireFromPath(trustDomain, "/spire/agent")
	conn, err := spiffe.NewBrokerConn("", x509, tlsconfig.AuthorizeIDPrefix(agents))
	if err != nil {
		_ = x509.Close()
		return nil, nil, err
	}
	stop = func() { _, _ = conn.Close(), x509.Close() }
	issuer, err = spiffe.NewBrokerIssuer(conn, spiffe.IDs(trustDomain), spiffe.Config{Issuer: "https://oidc.example.org"})
	if err != nil {
		stop()
		return nil, nil, err
	}
	return issuer, stop, nil
}

// Controller makes the issuer of the controller itself, for calls without a
// ServiceAccount. The caller closes api.
func Controller(api *workloadapi.Client) (*spiffe.WorkloadIssuer, error) {
	id := spiffeid.RequireFromString("spiffe://example.org/ns/system/sa/controller")
	return spiffe.NewWorkloadIssuer(api, id, spiffe.Config{Issuer: "https://oidc.example.org"})
}

// AWS trusts the SPIFFE ID of a tenant. A simulated agent stands in for SPIRE.
func ExampleBrokerIssuer() {
	// The trust domain, the cluster and the cloud of this example.
	issuer, err := cloudtest.NewIssuer(cloudtest.IssuerConfig{URL: "https://oidc.example.org"})
	if err != nil {
		log.Fatal(err)
	}
	cloud, err := cloudtest.NewCloud()
	if err != nil {
		log.Fatal(err)
	}
	defer cloud.Close()
	const role, id = "arn:aws:iam::123456789012:role/tenant-a", "spiffe://example.org/ns/tenant-a/sa/app"
	cloud.AWS().AddOIDCProvider("123456789012", issuer.URL(), issuer.HTTPClient(), aws.DefaultAudience)
	cloud.AWS().SetRole(role, cloudtest.Trust{Issuer: issuer.URL(), Subjects: []string{id}})
	app := client.ObjectKey{Namespace: "tenant-a", Name: "app"}
	kube := issuer.Client(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: app.Namespace, Name: app.Name,
		Annotations: map[string]string{aws.RoleARNAnnotation: role}}})
	agent := spiffetest.NewAgent(issuer, kube)
	defer agent.Close()
	agent.Register(app, spiffeid.RequireFromString(id))
	conn, err := agent.Conn()
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // in memory

	trustDomain := spiffeid.RequireTrustDomainFromString("example.org")
	svids, err := spiffe.NewBrokerIssuer(conn, spiffe.IDs(trustDomain), spiffe.Config{Issuer: issuer.URL()})
	if err != nil {
		log.Fatal(err)
	}
	token, err := auth.GetAccessToken(context.Background(), &aws.Provider{}, auth.WithSubjectIssuer(svids),
		auth.WithServiceAccount(app, kube),
		auth.WithOwner(cache.InvolvedObject{Kind: "Bucket", Namespace: "tenant-a", Name: "b"}),
		auth.WithSTSRegion("eu-central-1"),
		auth.WithHTTPClient(cloud.Client()))
	if err != nil {
		log.Fatal(err)
	}
	session, _ := aws.FromToken(token)
	identity, _ := cloud.AWS().Identity(session.AccessKeyID())
	fmt.Println(identity.Subject)
	// Output: spiffe://example.org/ns/tenant-a/sa/app
}
