package plugin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/plugin"
	"github.com/workloadid/workloadid/auth/token"
	"github.com/workloadid/workloadid/cloudtest"
)

// The kubelet asks a plugin for the credentials of an image, with the token of
// the pod's ServiceAccount. The registry of this example trusts the issuer.
func Example() {
	ctx := context.Background()
	issuer, err := cloudtest.NewIssuer(cloudtest.IssuerConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app"}}
	podsToken, err := issuer.Sign(issuer.Claims(sa, []string{"registry.example.com"}, time.Hour))
	if err != nil {
		fmt.Println(err)
		return
	}
	stdin := strings.NewReader(`{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderRequest",` +
		`"image":"registry.example.com/team/app","serviceAccountToken":"` + podsToken + `"}`)

	request, err := plugin.ReadKubeletRequest(ctx, stdin) // in a program: os.Stdin
	if err != nil {
		fmt.Println(err)
		return
	}
	serviceAccount, err := plugin.ServiceAccountOf(request.ServiceAccountToken, request.ServiceAccountAnnotations)
	if err != nil {
		fmt.Println(err)
		return
	}
	provider := &token.Provider{Registries: []token.Registry{{Host: "registry.example.com", Username: "token"}}}
	credentials, err := auth.GetArtifactRegistryCredentials(ctx, provider, request.Image,
		auth.WithSubjectToken(auth.NewStaticTokenSource(request.ServiceAccountToken), serviceAccount))
	if err != nil {
		fmt.Println(err)
		return
	}
	login, err := credentials.Authorization()
	if err != nil {
		fmt.Println(err)
		return
	}
	answer, err := plugin.EncodeKubeletResponse(request, login.Username, login.Password, credentials.ExpiresAt())
	if err != nil {
		fmt.Println(err)
		return
	}
	var decoded struct {
		Kind string
		Auth map[string]struct{ Username, Password string }
	}
	if err := json.Unmarshal(answer, &decoded); err != nil { // a program writes the answer to os.Stdout
		fmt.Println(err)
		return
	}
	own := decoded.Auth["registry.example.com"]
	fmt.Println(decoded.Kind, own.Username, own.Password == podsToken)
	// Output: CredentialProviderResponse token true
}
