package bootstrap_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	corev1 "k8s.io/api/core/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"

	"github.com/workloadid/workloadid/bootstrap"
)

// An administrator creates a token, the cluster signs its cluster-info with it,
// and a machine that knows an address, the token and a pin discovers the
// cluster.
func Example() {
	// The administrator stores the token as a Secret in kube-system.
	token, err := bootstrap.GenerateToken()
	if err != nil {
		fmt.Println(err)
		return
	}
	config := bootstrap.TokenConfig{Token: token, Expires: time.Now().Add(24 * time.Hour),
		Usages: []string{bootstrap.UsageSigning, bootstrap.UsageAuthentication}}
	secret, err := config.Secret()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(secret.Namespace, secret.Type)

	// A server in the API server's place, and a signer such as
	// kube-controller-manager's.
	var clusterInfo corev1.ConfigMap
	cluster := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(clusterInfo)
	}))
	defer cluster.Close()
	info := &bootstrap.ClusterInfo{Server: cluster.URL,
		CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cluster.Certificate().Raw})}
	kubeconfig, err := info.Encode()
	if err != nil {
		fmt.Println(err)
		return
	}
	clusterInfo.Data = map[string]string{
		bootstrapapi.KubeConfigKey:                      string(kubeconfig),
		bootstrapapi.JWSSignatureKeyPrefix + token.ID(): bootstrap.Sign(kubeconfig, token),
	}

	// The joining machine.
	pins, err := bootstrap.ParsePins(bootstrap.PinOf(cluster.Certificate()).String()) // "sha256:…"
	if err != nil {
		fmt.Println(err)
		return
	}
	address := cluster.Listener.Addr().String() // such as 10.0.0.1:6443
	found, err := bootstrap.Discover(context.Background(), []string{address}, token, bootstrap.WithPins(pins))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("found the cluster:", found.Server == cluster.URL)

	// Another cluster has another CA.
	_, err = bootstrap.Discover(context.Background(), []string{address}, token, bootstrap.WithPins(bootstrap.PinSet{{}}))
	fmt.Println("another CA is refused:", errors.Is(err, bootstrap.ErrPins))
	// Output:
	// kube-system bootstrap.kubernetes.io/token
	// found the cluster: true
	// another CA is refused: true
}
