package proxy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	"github.com/workloadid/workloadid/podidentity/proxy"
)

// A sidecar fetches credentials with the pod's token and answers the
// application. Its environment holds the CA of the server and the secret.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	dir, err := os.MkdirTemp("", "pod-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	tokenFile := filepath.Join(dir, "token") // in a pod: /var/run/secrets/iam.aws.k8s.io/token
	if err := os.WriteFile(tokenFile, []byte("token-of-the-pod"), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("the server gets:", r.Method, r.URL.Path, r.Header.Get("Authorization"))
		_, _ = fmt.Fprintf(w, `{"AccessKeyId":"ASIA1","SecretAccessKey":"s","Token":"t","Expiration":%q}`,
			time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	}))
	defer server.Close()

	p, err := proxy.New(proxy.Options{
		Server:    server.URL,      // in a pod: https://iam-credentials-provider.iam-system.svc:8443
		Client:    server.Client(), // in a pod: CA, from WORKLOADID_SERVER_CA
		TokenFile: tokenFile,
		Secret:    "secret-of-the-pod", // in a pod: AWS_CONTAINER_AUTHORIZATION_TOKEN
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	listeners, err := proxy.Listen(ctx, "127.0.0.1:0") // in a pod: port 2020
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() { _ = p.Run(ctx) }()
	go func() { _ = proxy.Serve(ctx, p, listeners) }()

	// An SDK does the same, with the two variables of the package comment.
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+listeners[0].Addr().String()+"/v1/credentials",
		http.NoBody)
	if err != nil {
		fmt.Println(err)
		return
	}
	r.Header.Set("Authorization", "secret-of-the-pod")
	answer, err := http.DefaultClient.Do(r)
	for err == nil && answer.StatusCode == http.StatusServiceUnavailable { // the first credentials are on their way
		_ = answer.Body.Close()
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
		answer, err = http.DefaultClient.Do(r) // fails once ctx has ended
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	body, err := io.ReadAll(answer.Body)
	fmt.Println("the application gets:", string(body[:23]), err, answer.Body.Close())
	// Output:
	// the server gets: POST /v1/credentials Bearer token-of-the-pod
	// the application gets: {"AccessKeyId":"ASIA1", <nil> <nil>
}
