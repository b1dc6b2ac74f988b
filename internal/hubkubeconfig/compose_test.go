package hubkubeconfig_test

import (
	"os"
	"testing"

	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	"github.com/workloadid/workloadid/internal/hubkubeconfig"
)

// testdata/ocm.yaml is what the agent of Open Cluster Management (00f84c3) wrote for a bootstrap kubeconfig. It compares bytes.
func TestComposeWritesWhatOCMsAgentWrites(t *testing.T) {
	want, err := os.ReadFile("testdata/ocm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	hub := &hubkubeconfig.Hub{Name: "hub-of-example",
		Cluster: clientcmdv1.Cluster{Server: "https://hub.example.com:6443", CertificateAuthorityData: []byte("CA")}}
	got, err := hub.Compose(clientcmdv1.AuthInfo{ClientCertificate: "tls.crt", ClientKey: "tls.key"})
	if err != nil || string(got) != string(want) {
		t.Errorf("%v, got\n%s", err, got)
	}
}

func TestComposeNamesTheClusterAsTheBootstrapKubeconfig(t *testing.T) {
	for given, want := range map[string]string{`"name":"production",`: "production", "": "hub"} {
		t.Run(want, func(t *testing.T) {
			bootstrap := `{"apiVersion":"v1","kind":"Config","clusters":[{` + given + `"cluster":{"server":"https://h:1"}}]}`
			hub, err := hubkubeconfig.ParseBootstrap([]byte(bootstrap))
			if err != nil {
				t.Fatal(err)
			}
			composed, err := hub.Compose(clientcmdv1.AuthInfo{Token: "t"})
			if err != nil {
				t.Fatal(err)
			}
			if k, err := hubkubeconfig.Parse(composed); err != nil || k.Clusters[0].Name != want || k.Contexts[0].Context.Cluster != want {
				t.Errorf("%v, %+v", err, k)
			}
		})
	}
}
