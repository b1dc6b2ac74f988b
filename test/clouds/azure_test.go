package clouds_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azkeys"

	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// only serves bearers of tenant-a whose token has the audience of the service.
// It answers other requests with 401 and a challenge.
func only(cloud *cloudtest.Cloud, audience string, handler http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		bearer, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		caller, ok := cloud.Azure().Identity(bearer)
		if !ok || caller.ClientID != azureClient || caller.Audience != audience {
			w.Header().Set("WWW-Authenticate",
				`Bearer authorization="https://login.microsoftonline.com/`+azureTenant+`", resource="`+audience+`"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		handler(w, r)
	})
}

// A controller decrypts with a key of Azure Key Vault. The vault names scope
// and tenant in a challenge.
func TestDecryptWithKeyVault(t *testing.T) {
	w := newAzure(t)
	w.Cloud.Handle("vault-a.vault.azure.net", only(w.Cloud, "https://vault.azure.net", serveKey))
	client, err := azkeys.NewClient("https://vault-a.vault.azure.net",
		azure.NewTokenCredential(w.Options("tenant-a", "app", testenv.Cached(t, "tenant-a"))...),
		&azkeys.ClientOptions{
			ClientOptions: azcore.ClientOptions{Transport: w.Cloud.Client(), Retry: policy.RetryOptions{MaxRetries: -1}}})
	if err != nil {
		t.Fatal(err)
	}
	algorithm := to.Ptr(azkeys.EncryptionAlgorithmRSAOAEP256)
	sealed, err := client.Encrypt(t.Context(), "sops", "1",
		azkeys.KeyOperationParameters{Algorithm: algorithm, Value: []byte("a secret")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	opened, err := client.Decrypt(t.Context(), "sops", "1",
		azkeys.KeyOperationParameters{Algorithm: algorithm, Value: sealed.Result}, nil)
	if err != nil || string(opened.Result) != "a secret" {
		t.Errorf("got %q, %v, want a secret", opened.Result, err)
	}
	if n := w.Cloud.Calls("entra", "token"); n != 1 {
		t.Errorf("%d exchanges for two calls, want 1", n)
	}
}

// serveKey encrypts nothing: a ciphertext is the key's path and the plaintext.
func serveKey(w http.ResponseWriter, r *http.Request) {
	key, operation := path.Split(r.URL.Path)
	var message struct {
		Value string `json:"value"`
	}
	malformed := json.NewDecoder(r.Body).Decode(&message) != nil
	value, err := base64.RawURLEncoding.DecodeString(message.Value)
	opened, own := bytes.CutPrefix(value, []byte(key))
	switch {
	case malformed, err != nil, operation == "decrypt" && !own:
		w.WriteHeader(http.StatusBadRequest)
		return
	case operation == "decrypt":
		value = opened
	default:
		value = append([]byte(key), value...)
	}
	message.Value = base64.RawURLEncoding.EncodeToString(value)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(message) // a client that has gone needs no answer
}

// Event Hubs and Azure DevOps accept the token of their scope as a bearer of
// their REST API, and no other token. Event Hubs over AMQP is not tried.
func TestBearerOfAzureServices(t *testing.T) {
	for name, tc := range map[string]struct{ scope, audience, host, path, contentType, body string }{
		"Event Hubs": {scope: "https://eventhubs.azure.net/.default", audience: "https://eventhubs.azure.net",
			host: "events.servicebus.windows.net", path: "/tenant-a/messages?api-version=2014-01",
			contentType: "application/atom+xml;type=entry;charset=utf-8", body: "deployed"},
		"Azure DevOps": {scope: "499b84ac-1321-427f-aa17-267ca6975798/.default",
			audience: "499b84ac-1321-427f-aa17-267ca6975798", host: "dev.azure.com",
			path:        "/my-organization/tenant-a/_apis/git/repositories/app/commits/0a1b2c/statuses?api-version=7.1",
			contentType: "application/json", body: `{"state":"succeeded","context":{"name":"deployed"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newAzure(t)
			w.Cloud.Azure().AddResource(azureTenant, tc.audience)
			var got []string
			w.Cloud.Handle(tc.host, only(w.Cloud, tc.audience, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body) // a body that was cut differs
				got = append(got, r.Method+" "+r.URL.RequestURI()+" "+string(body))
				w.WriteHeader(http.StatusCreated)
			}))
			credential := azure.NewTokenCredential(w.Options("tenant-a", "app", testenv.Cached(t, "tenant-a"))...)
			for _, scope := range []string{tc.scope, "https://management.azure.com/.default"} {
				token, err := credential.GetToken(t.Context(), policy.TokenRequestOptions{Scopes: []string{scope}})
				if err != nil {
					t.Fatal(err)
				}
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+tc.host+tc.path,
					strings.NewReader(tc.body))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Authorization", "Bearer "+token.Token)
				r.Header.Set("Content-Type", tc.contentType)
				resp, err := w.Cloud.Client().Do(r)
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close() // it is empty
				want := map[bool]int{true: http.StatusCreated, false: http.StatusUnauthorized}[scope == tc.scope]
				if resp.StatusCode != want {
					t.Errorf("with the scope %q: HTTP %d, want %d", scope, resp.StatusCode, want)
				}
			}
			if want := "POST " + tc.path + " " + tc.body; len(got) != 1 || got[0] != want {
				t.Errorf("the service got %q, want %q", got, want)
			}
		})
	}
}
