package exchange_test

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// grants are the ways to present a ServiceAccount's token in OAuth's own form,
// or in JSON.
func grants() map[string]func(*environment) *exchange.Provider {
	plain := func(grant exchange.Grant, json bool) func(*environment) *exchange.Provider {
		return func(w *environment) *exchange.Provider {
			return &exchange.Provider{Endpoint: w.oauth.TokenEndpoint(), Grant: grant, JSONBody: json}
		}
	}
	return map[string]func(*environment) *exchange.Provider{
		"token exchange":     plain(exchange.GrantTokenExchange, false),
		"jwt-bearer":         plain(exchange.GrantJWTBearer, false),
		"jwt-bearer in JSON": plain(exchange.GrantJWTBearer, true),
		"client_credentials": plain(exchange.GrantClientCredentials, false),
		"keycloak":           func(w *environment) *exchange.Provider { return exchange.NewKeycloak(w.oauth.URL()) },
	}
}

func eachGrant(t *testing.T, test func(*testing.T, *environment, *exchange.Provider)) {
	t.Helper()
	for name, newProvider := range grants() {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			test(t, w, newProvider(w))
		})
	}
}

// repeat answers a request for a token with an error that repeats all of the
// request. Metadata stay those of the server.
func (w *environment) repeat(t *testing.T, said *string) {
	t.Helper()
	w.Cloud.Handle("oauth.example", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet {
			_, _ = fmt.Fprintf(rw, `{"issuer":%q,"token_endpoint":%q}`, w.oauth.URL(), w.oauth.TokenEndpoint())
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		*said = fmt.Sprint(string(body), r.Header)
		rw.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(rw, `{"error":"invalid_grant","error_description":%q}`, *said)
	}))
}

var sentToken = regexp.MustCompile(`eyJ[\w-]+\.[\w-]+\.([\w-]+)`)

// A server that repeats the request reveals no token and no header of the
// controller's, whatever the form.
func TestGrantsRevealNothing(t *testing.T) {
	eachGrant(t, func(t *testing.T, w *environment, p *exchange.Provider) {
		const key, pool = "controllers-key-0123", "controllers-pool"
		p.Headers, p.Parameters = map[string]string{"X-Api-Key": key}, map[string]string{"pool": pool}
		p.AnnotatedParameters = map[string]string{"account": "example.com/account"}
		var said string
		w.repeat(t, &said)
		_, err := w.get(t, p, auth.WithAnnotations(map[string]string{"example.com/account": "account-a"}))
		sent := sentToken.FindStringSubmatch(said)
		if len(sent) != 2 || !strings.Contains(said, key) || !strings.Contains(said, pool) {
			t.Fatalf("the server got %s", said)
		}
		testenv.CheckError(t, err, auth.ErrDenied, "[redacted]", `account "account-a"`)
		if strings.Contains(err.Error(), sent[1]) || strings.Contains(err.Error(), key) ||
			strings.Contains(err.Error(), `pool "`) {
			t.Errorf("got %v", err)
		}
	})
}

// The fake of Keycloak refuses what the realm refuses.
func TestFederatedClientsAreChecked(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*exchange.Provider)
		option auth.Option
		want   string
	}{
		"a parameter": {func(p *exchange.Provider) { p.Parameters = map[string]string{"pool": "one"} }, nil,
			"the parameter pool is unknown (HTTP 400, invalid_request); correct the grant client_credentials, the parameter pool"},
		"a long-lived token":  {nil, auth.WithTokenLifetime(2 * time.Hour), "more than 3,600 seconds"},
		"another audience":    {func(p *exchange.Provider) { p.KubernetesAudience = "other" }, nil, "not for this server"},
		"a scope not granted": {nil, auth.WithScopes("admin"), "scope"},
		"the form is no JSON": {func(p *exchange.Provider) { p.JSONBody = true }, nil, "application/x-www-form-urlencoded"},
		"a client of its own": {func(p *exchange.Provider) {
			p.Parameters = map[string]string{"client_id": "app"}
		}, nil, ""},
		"the realm's own time": {nil, auth.WithTokenLifetime(time.Hour), ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			p := exchange.NewKeycloak(w.oauth.URL())
			if tc.change != nil {
				tc.change(p)
			}
			var more []auth.Option
			if tc.option != nil {
				more = append(more, tc.option)
			}
			_, err := w.get(t, p, more...)
			if tc.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			reason := auth.ErrDenied
			if strings.Contains(tc.want, "invalid_request") || p.JSONBody { // what the controller sends is wrong
				reason = auth.ErrMisconfigured
			}
			testenv.CheckError(t, err, reason, tc.want)
		})
	}
}

// The controller itself is a tenant of Tailscale too, whose audience depends on
// the client ID.
func TestControllersOwnTokenAtTailscale(t *testing.T) {
	f := newFederation(t, cloudtest.FederationTailscale)
	p := exchange.NewTailscale()
	p.AnnotatedParameters, p.Parameters = nil, map[string]string{"client_id": "client-1"}
	p.TokenFile = f.writeToken(t, "api.tailscale.com/client-1")
	token, err := auth.GetAccessToken(t.Context(), p, auth.WithHTTPClient(f.Cloud.Client()))
	if err != nil {
		t.Fatal(err)
	}
	own, err := exchange.FromToken(token)
	if err != nil {
		t.Fatal(err)
	}
	if id, ok := f.Identity(own.Reveal()); !ok || id.Subject != subject("controller") {
		t.Errorf("the service knows %+v", id)
	}
	p = exchange.NewTailscale()
	p.TokenFile = f.writeToken(t, "api.tailscale.com/client-1")
	_, err = auth.GetAccessToken(t.Context(), p, auth.WithHTTPClient(f.Cloud.Client()))
	testenv.CheckError(t, err, auth.ErrMisconfigured, "client_id", "annotation of a ServiceAccount")
}

// GitHub and Vault ignore the case of these, so a Policy that refuses
// org/secret would let Org/Secret pass.
func TestPoliciesSeeLowerCase(t *testing.T) {
	for name, tc := range map[string]struct {
		of          *exchange.Provider
		annotations map[string]string
		want        string
	}{
		"scope of octo-sts": {exchange.NewOctoSTS("octo-sts.dev"),
			map[string]string{exchange.OctoSTSScopeAnnotation: "Org/Secret",
				exchange.OctoSTSIdentityAnnotation: "Deploy"}, "identity=Deploy,scope=org/secret"},
		"role of Vault": {exchange.NewVault(exchange.VaultServer{Address: "https://vault.example", KubernetesAudience: "a"}),
			map[string]string{exchange.VaultRoleAnnotation: "Admin"}, "admin"},
		"role of Databricks": {exchange.NewDatabricks("https://dbc-1.cloud.databricks.com", "a"),
			map[string]string{exchange.DatabricksClientIDAnnotation: "Admin"}, "Admin"},
	} {
		t.Run(name, func(t *testing.T) {
			sa := &corev1.ServiceAccount{}
			sa.Annotations = tc.annotations
			if got, err := tc.of.GetIdentity(sa, nil); err != nil || got != tc.want {
				t.Errorf("got %q, %v, want %q", got, err, tc.want)
			}
		})
	}
}
