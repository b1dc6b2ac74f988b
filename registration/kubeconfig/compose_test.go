package kubeconfig_test

import (
	"os"
	"reflect"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	"github.com/workloadid/workloadid/registration/kubeconfig"
)

// testdata/ocm.yaml is what the agent of Open Cluster Management (00f84c3)
// writes for testdata/bootstrap.yaml. It compares bytes.
func TestComposeWritesWhatOCMsAgentWrites(t *testing.T) {
	read := func(name string) []byte {
		content, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	hub, err := kubeconfig.ParseBootstrap(read("bootstrap.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := hub.Compose(clientcmdv1.AuthInfo{ClientCertificate: "tls.crt", ClientKey: "tls.key"})
	if err != nil || string(got) != string(read("ocm.yaml")) {
		t.Errorf("%v, got\n%s", err, got)
	}
}

func TestComposeNamesTheClusterAsTheBootstrapKubeconfig(t *testing.T) {
	for given, want := range map[string]string{`"name":"production",`: "production", "": "hub"} {
		t.Run(want, func(t *testing.T) {
			bootstrap := `{"apiVersion":"v1","kind":"Config","clusters":[{` + given + `"cluster":{"server":"https://h:1"}}]}`
			hub, err := kubeconfig.ParseBootstrap([]byte(bootstrap))
			if err != nil {
				t.Fatal(err)
			}
			composed, err := hub.Compose(clientcmdv1.AuthInfo{Token: "t"})
			if err != nil {
				t.Fatal(err)
			}
			if k, err := kubeconfig.Parse(composed); err != nil || k.Clusters[0].Name != want ||
				k.Contexts[0].Context.Cluster != want {
				t.Errorf("%v, %+v", err, k)
			}
		})
	}
}

// A driver's configuration decides neither where the hub is nor how its
// certificate is verified.
func TestSetAddressReplacesTheAddressOfADriver(t *testing.T) {
	hub := &kubeconfig.Hub{Cluster: clientcmdv1.Cluster{Server: "https://hub:6443",
		CertificateAuthorityData: []byte("hub's CA"), TLSServerName: "hub"}}
	want := rest.Config{Host: "https://hub:6443", Timeout: kubeconfig.Timeout,
		TLSClientConfig: rest.TLSClientConfig{CAData: []byte("hub's CA"), ServerName: "hub"}}
	for name, given := range map[string]rest.Config{
		"another address":          {Host: "https://elsewhere", Timeout: time.Hour},
		"certificate not verified": {TLSClientConfig: rest.TLSClientConfig{Insecure: true}},
		"another CA": {TLSClientConfig: rest.TLSClientConfig{CAData: []byte("another"), CAFile: "/ca.crt",
			ServerName: "another"}},
	} {
		t.Run(name, func(t *testing.T) {
			if hub.SetAddress(&given); !reflect.DeepEqual(given, want) {
				t.Errorf("got %#v, want %#v", given, want)
			}
		})
	}
}
