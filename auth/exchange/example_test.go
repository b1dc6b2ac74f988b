package exchange_test

import (
	"context"
	"fmt"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cloudtest"
)

// A controller calls a service as the ServiceAccount that an object names.
func ExampleProvider_NewTransport() {
	ctx := context.Background()
	// The cluster and the authorization server of this example.
	issuer, err := cloudtest.NewIssuer(cloudtest.IssuerConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	cloud, err := cloudtest.NewCloud()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cloud.Close()
	kubeClient := issuer.Client(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app"}})
	server := cloud.OAuth()
	server.AddIssuer(issuer.URL(), issuer.HTTPClient(), server.URL())
	server.SetClient(cloudtest.OAuthClient{ID: "controller", Method: "client_secret_basic", Secret: "correct-horse"})
	server.AddGrant(cloudtest.OAuthGrant{Issuer: issuer.URL(), Subjects: []string{"system:serviceaccount:tenant-a:app"},
		Scopes: []string{"profile"}})

	// One for the whole controller. The secret is read at every exchange, in
	// production from a file.
	provider := &exchange.Provider{
		IssuerURL: server.URL(),
		Client: exchange.ClientSecretBasic("controller", func(context.Context) (string, error) {
			return "correct-horse", nil
		}),
	}
	tokens, err := cache.NewTokenCache(100)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tokens.Close()

	object := cache.InvolvedObject{Kind: "Report", Namespace: "tenant-a", Name: "weekly",
		Operation: cache.OperationReconcile}
	transport, err := provider.NewTransport(cloud.Client().Transport, []string{"oauth.example"},
		auth.WithServiceAccount(client.ObjectKey{Namespace: "tenant-a", Name: "app"}, kubeClient),
		auth.WithCache(tokens, object),
		auth.WithScopes("profile"),
		auth.WithHTTPClient(cloud.Client()))
	if err != nil {
		fmt.Println(err)
		return
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://oauth.example/userinfo", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(resp.StatusCode, string(body))
	// Output: 200 {"scope":"profile","sub":"system:serviceaccount:tenant-a:app"}
}

// The controller's own ServiceAccount is the client: there is no secret to
// store.
func ExampleServiceAccountAssertion() {
	const file = "/var/run/secrets/login.example.com/token" // a projected volume with the audience of the server
	provider := &exchange.Provider{
		Name:      "login",
		IssuerURL: "https://login.example.com",
		Audience:  "https://api.example.com",
		Client:    exchange.ServiceAccountAssertion("controller", auth.NewFileTokenSource(file)),
		TokenFile: file,
	}
	fmt.Println(provider.GetName())
	// Output: login
}
