package github_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/auth/github"
	"github.com/workloadid/workloadid/cache"
)

// GitHubApp makes the provider of a controller. Each namespace of tenants is
// listed with what it may do.
func GitHubApp(sign github.SignFunc) *github.Provider {
	grants := map[string]github.Grant{
		"tenant-a": {Installation: 42, Repositories: []string{"app", "infra"},
			Permissions: map[string]string{"contents": "read"}},
	}
	return &github.Provider{AppID: "Iv23liExample", Sign: sign,
		Grant: func(sa *corev1.ServiceAccount) (github.Grant, error) { return grants[sa.Namespace], nil }}
}

// AsRole makes a tenant's AWS role its identity at other services. The
// controller makes the option once.
func AsRole(p *aws.Provider) (auth.Option, error) {
	issuer, err := p.NewWebIdentityIssuer(aws.WebIdentity{}, auth.WithSTSRegion("eu-central-1"))
	return auth.WithSubjectIssuer(issuer), err
}

// NewProviders are those of a controller in AKS whose tenants also use a GitHub
// App.
func NewProviders(app *github.Provider) (*auth.ProviderSet, error) {
	return auth.NewProviderSet(&azure.Provider{IdentityBindings: true}, app)
}

// SignInKMS signs with the key of the tenant's own App in Google Cloud KMS, as
// the tenant itself. The key ring has a key for each namespace, with the
// algorithm RSA_SIGN_PKCS1_2048_SHA256. A nil HTTP client is the usual one.
func SignInKMS(google *gcp.Provider, kube auth.KubernetesClient, tokens *cache.TokenCache, keyRing string,
	httpClient *http.Client) github.SignFunc {
	return func(ctx context.Context, sa *corev1.ServiceAccount, digest []byte) ([]byte, error) {
		owner := cache.InvolvedObject{Kind: "ServiceAccount", Namespace: sa.Namespace, Name: sa.Name, Operation: "sign"}
		token, err := auth.GetAccessToken(ctx, google, auth.WithServiceAccount(client.ObjectKeyFromObject(sa), kube),
			auth.WithCache(tokens, owner), auth.WithHTTPClient(httpClient))
		if err != nil {
			return nil, err
		}
		credential, err := gcp.FromToken(token)
		if err != nil {
			return nil, err
		}
		key := keyRing + "/cryptoKeys/" + sa.Namespace + "/cryptoKeyVersions/1"
		return asymmetricSign(ctx, cmp.Or(httpClient, http.DefaultClient), key, credential.AccessToken(), digest)
	}
}

// asymmetricSign is the method of that name of Google Cloud KMS.
func asymmetricSign(ctx context.Context, httpClient *http.Client, key, accessToken string, digest []byte) ([]byte,
	error) {
	body, err := json.Marshal(map[string]any{"digest": map[string][]byte{"sha256": digest}})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost,
		"https://cloudkms.googleapis.com/v1/"+key+":asymmetricSign", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+accessToken)
	req.Header.Set("Content-Type", "application/json")
	resp, err := httpClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // nothing was written
	var answer struct {
		Signature []byte `json:"signature"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the KMS answers %s", resp.Status)
	}
	return answer.Signature, nil
}
