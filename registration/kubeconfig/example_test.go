package kubeconfig_test

import (
	"fmt"

	"k8s.io/client-go/rest"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/kubeconfig"
)

// A program beside the agent uses the agent's credential. It goes to the hub
// that its own configuration names, whatever address the Secret holds.
func ExampleInline() {
	hub := kubeconfig.Hub{Cluster: clientcmdv1.Cluster{Server: "https://hub.example:6443"}}
	connect := func(secret map[string][]byte) (*rest.Config, error) {
		user, err := kubeconfig.User(secret[registration.SecretKeyKubeconfig])
		if err != nil {
			return nil, err
		}
		if user, err = kubeconfig.Inline(user, secret); err != nil {
			return nil, err
		}
		return hub.Config(user), nil
	}
	written, _ := hub.Compose(clientcmdv1.AuthInfo{TokenFile: "token"})
	config, err := connect(map[string][]byte{registration.SecretKeyKubeconfig: written, "token": []byte("secret")})
	fmt.Println(config.Host, config.BearerToken, err)
	_, err = connect(map[string][]byte{registration.SecretKeyKubeconfig: written})
	fmt.Println(err)
	// Output:
	// https://hub.example:6443 secret <nil>
	// its user names a file, tokenFile "token": write the content into the kubeconfig itself
}
