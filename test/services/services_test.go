package services

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicconfig "github.com/anthropics/anthropic-sdk-go/config"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	openaiauth "github.com/openai/openai-go/v3/auth"
	openaioption "github.com/openai/openai-go/v3/option"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

const subject = "system:serviceaccount:tenant-a:app"

// service is one of those whose SDK makes the exchange itself.
type service struct {
	fake       cloudtest.FederationService
	provider   *exchange.Provider
	audience   string
	parameters map[string]string
	annotation string // of service_account_id
	exchange   func(t *testing.T, http *http.Client, jwt string, parameters map[string]string) (string, error)
}

func anthropicService() service {
	return service{cloudtest.FederationAnthropic, exchange.NewAnthropic("org-1", "rule-1", "our-audience"), "our-audience",
		map[string]string{"organization_id": "org-1", "federation_rule_id": "rule-1", "service_account_id": "svac_1"},
		exchange.AnthropicServiceAccountAnnotation,
		func(t *testing.T, httpClient *http.Client, jwt string, parameters map[string]string) (string, error) {
			t.Helper()
			credentials, err := anthropicconfig.ExchangeFederationAssertion(t.Context(),
				anthropicconfig.FederationExchangeParams{
					Assertion: jwt, OrganizationID: parameters["organization_id"], FederationRuleID: parameters["federation_rule_id"],
					ServiceAccountID: parameters["service_account_id"], HTTPClient: httpClient})
			if err != nil {
				return "", err
			}
			return credentials.AccessToken, nil
		}}
}

func openaiService() service {
	return service{cloudtest.FederationOpenAI, exchange.NewOpenAI("idp-1"), openaiauth.DefaultAudience,
		map[string]string{"identity_provider_id": "idp-1", "service_account_id": "sa-1"},
		exchange.OpenAIServiceAccountAnnotation,
		func(t *testing.T, httpClient *http.Client, jwt string, parameters map[string]string) (string, error) {
			t.Helper()
			file := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(file, []byte(jwt), 0o600); err != nil {
				t.Fatal(err)
			}
			sdk,
				err := openaiauth.NewWorkloadIdentityAuth(
				openaiauth.WorkloadIdentity{IdentityProviderID: parameters["identity_provider_id"],
					ServiceAccountID: parameters["service_account_id"], Provider: openaiauth.K8sServiceAccountTokenProvider(file)})
			if err != nil {
				t.Fatal(err)
			}
			return sdk.GetToken(t.Context(), httpClient)
		}}
}

// environment is a cluster with two tenants, of which the service lets the
// first in.
type environment struct {
	*testenv.Environment
	service
	fake *cloudtest.Federation
}

func newEnvironment(t *testing.T, s service) *environment {
	t.Helper()
	var accounts []client.Object
	for _, namespace := range []string{"tenant-a", "tenant-b"} {
		accounts = append(accounts,
			testenv.ServiceAccount(namespace, "app", s.annotation, s.parameters["service_account_id"]))
	}
	w := &environment{Environment: testenv.New(t, accounts...), service: s}
	w.fake = w.Cloud.Federation(s.fake)
	w.fake.AddIssuer(w.Issuer.URL(), w.Issuer.HTTPClient())
	w.fake.AddRule(cloudtest.FederationRule{Issuer: w.Issuer.URL(), Subject: subject, Audience: s.audience,
		Parameters: s.parameters})
	return w
}

func (w *environment) claims() map[string]any {
	return w.Issuer.Claims(testenv.ServiceAccount("tenant-a", "app"), []string{w.audience}, time.Hour)
}

func each(t *testing.T, test func(*testing.T, *environment)) {
	t.Helper()
	for _, s := range []service{anthropicService(), openaiService()} {
		t.Run(string(s.fake), func(t *testing.T) { test(t, newEnvironment(t, s)) })
	}
}

// The SDK's own exchange passes, and fails with any one thing wrong. So the
// fake asks for what the SDK sends.
func TestFakesAskForWhatTheSDKSends(t *testing.T) {
	each(t, func(t *testing.T, w *environment) {
		good, err := w.Issuer.Sign(w.claims())
		if err != nil {
			t.Fatal(err)
		}
		token, err := w.exchange(t, w.Cloud.Client(), good, w.parameters)
		if id, ok := w.fake.Identity(token); err != nil || !ok || id.Subject != subject {
			t.Fatalf("got %+v, %v", id, err)
		}
		for name := range w.parameters {
			wrong := maps.Clone(w.parameters)
			wrong[name] = "other"
			t.Run(name, func(t *testing.T) {
				if _, err := w.exchange(t, w.Cloud.Client(), good, wrong); err == nil {
					t.Error("another value passes")
				}
			})
		}
		for claim, value := range map[string]any{"iss": "https://evil.example", "sub": "system:serviceaccount:tenant-b:app",
			"aud": []string{"other"}, "exp": time.Now().Add(-time.Minute).Unix(), "nbf": time.Now().Add(time.Hour).Unix()} {
			t.Run(claim, func(t *testing.T) {
				claims := w.claims()
				claims[claim] = value
				jwt, err := w.Issuer.Sign(claims)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := w.exchange(t, w.Cloud.Client(), jwt, w.parameters); err == nil {
					t.Error("another value passes")
				}
			})
		}
		t.Run("signature", func(t *testing.T) {
			if _, err := w.exchange(t, w.Cloud.Client(), good[:len(good)-8]+"AAAAAAAA", w.parameters); err == nil {
				t.Error("a forged token passes")
			}
		})
	})
}

// recorder keeps what is sent, without the token.
type recorder struct {
	base http.RoundTripper
	sent map[string]string
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	r.sent = map[string]string{"": req.Method + " " + req.URL.String() + " " + req.Header.Get("Content-Type"),
		"beta": req.Header.Get("Anthropic-Beta")}
	members := map[string]string{}
	if err := json.Unmarshal(body, &members); err != nil {
		return nil, err
	}
	for name, value := range members {
		if strings.HasPrefix(value, "eyJ") {
			value = "a token"
		}
		r.sent["member "+name] = value
	}
	return r.base.RoundTrip(req)
}

func TestProviderSendsWhatTheSDKSends(t *testing.T) {
	each(t, func(t *testing.T, w *environment) {
		theirs, ours := &recorder{base: w.Cloud.Client().Transport}, &recorder{base: w.Cloud.Client().Transport}
		jwt, err := w.Issuer.Sign(w.claims())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.exchange(t, &http.Client{Transport: theirs}, jwt, w.parameters); err != nil {
			t.Fatal(err)
		}
		if _, err := auth.GetAccessToken(t.Context(), w.provider,
			w.Options("tenant-a", "app", auth.WithHTTPClient(&http.Client{Transport: ours}))...); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(theirs.sent, ours.sent) {
			t.Errorf("the SDK sends %q,\nthe provider %q", theirs.sent, ours.sent)
		}
	})
}

// api accepts credentials of the service, but none that was refused before.
func (w *environment) api(t *testing.T, refuse *atomic.Value) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		id, ok := w.fake.Identity(token)
		rw.Header().Set("Content-Type", "application/json")
		if !ok || refuse.Load() == token ||
			w.service.fake == cloudtest.FederationAnthropic &&
				r.Header.Get("Anthropic-Beta") != anthropicconfig.OAuthAPIBetaHeader {
			rw.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(rw, `{"error":{"type":"authentication_error","message":"invalid token"}}`)
			return
		}
		if id.Subject != subject {
			t.Errorf("the API met %+v", id)
		}
		_, _ = io.WriteString(rw, `{"object":"list","data":[{"id":"m","object":"model","type":"model"}],"has_more":false}`)
	})
}

// call lists the models with the service's own client.
func (w *environment) call(ctx context.Context, httpClient *http.Client) error {
	if w.service.fake == cloudtest.FederationAnthropic {
		// The SDK leaves its header out where it does not authenticate by
		// itself.
		sdk := anthropic.NewClient(anthropicoption.WithHTTPClient(httpClient), anthropicoption.WithAuthToken("replaced"),
			anthropicoption.WithHeader("anthropic-beta", anthropicconfig.OAuthAPIBetaHeader), anthropicoption.WithMaxRetries(0))
		_, err := sdk.Models.List(ctx, anthropic.ModelListParams{})
		return err
	}
	sdk := openai.NewClient(openaioption.WithHTTPClient(httpClient), openaioption.WithAPIKey("replaced"),
		openaioption.WithMaxRetries(0))
	_, err := sdk.Models.List(ctx)
	return err
}

// inProcess reaches the cloud without a connection, so that time is the
// bubble's.
type inProcess struct{ cloud *cloudtest.Cloud }

func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := r.Clone(r.Context())
	if sent.Host = r.Host; sent.Host == "" {
		sent.Host = r.URL.Host
	}
	if sent.Body == nil {
		sent.Body = http.NoBody
	}
	answer := httptest.NewRecorder()
	p.cloud.Handler().ServeHTTP(answer, sent)
	return answer.Result(), nil
}

// The SDK's client calls the API with a tenant's token, which is replaced when
// the API refuses it and before it expires.
func TestSDKWithATenantsToken(t *testing.T) {
	each(t, func(t *testing.T, w *environment) {
		synctest.Test(t, func(t *testing.T) { w.callAsTenants(t) })
	})
}

func (w *environment) callAsTenants(t *testing.T) {
	t.Helper()
	var refused atomic.Value
	host := map[cloudtest.FederationService]string{cloudtest.FederationAnthropic: "api.anthropic.com",
		cloudtest.FederationOpenAI: "api.openai.com"}[w.service.fake]
	if w.service.fake == cloudtest.FederationAnthropic {
		w.fake.SetAPI(w.api(t, &refused))
	} else {
		w.Cloud.Handle(host, w.api(t, &refused))
	}
	tokens := testenv.Cache(t)
	options := func(namespace string) []auth.Option {
		object := cache.InvolvedObject{Kind: "Bot", Namespace: namespace, Name: "b", Operation: cache.OperationReconcile}
		return w.Options(namespace, "app", auth.WithCache(tokens, object),
			auth.WithHTTPClient(&http.Client{Transport: inProcess{w.Cloud}}))
	}
	transport := func(namespace string) *exchange.Transport {
		made, err := w.provider.NewTransport(inProcess{w.Cloud}, []string{host}, options(namespace)...)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	own := transport("tenant-a")
	check := func(what string, want int) {
		t.Helper()
		err := w.call(t.Context(), &http.Client{Transport: own})
		if n := w.Cloud.Calls(string(w.service.fake), "token"); n != want || err != nil {
			t.Errorf("%s: %d exchanges, want %d, %v", what, n, want, err)
		}
	}
	check("first call", 1)
	check("second call", 1)
	err := w.call(t.Context(), &http.Client{Transport: transport("tenant-b")})
	testenv.CheckError(t, err, auth.ErrDenied, "tenant-b")

	token, err := auth.GetAccessToken(t.Context(), w.provider, options("tenant-a")...)
	if err != nil {
		t.Fatal(err)
	}
	known, err := exchange.FromToken(token)
	if err != nil {
		t.Fatal(err)
	}
	refused.Store(known.Reveal())
	time.Sleep(time.Minute) // a younger token is not replaced
	if err := w.call(t.Context(), &http.Client{Transport: own}); err == nil {
		t.Fatal("the API takes the refused token")
	}
	own.Invalidate()
	check("after the API refused the token", 3) // the other tenant's is one
	time.Sleep(known.GetDuration() + 2*time.Hour)
	check("after its lifetime", 4)
	if err := w.Client.Delete(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app"}}); err != nil {
		t.Fatal(err)
	}
	if err := w.call(t.Context(), &http.Client{Transport: own}); err == nil {
		t.Error("the cached token outlives the ServiceAccount")
	}
}
