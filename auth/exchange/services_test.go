package exchange_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// federated is a service, and what it has to know of tenant-a.
type federated struct {
	make         func() *exchange.Provider
	audience     string
	annotations  map[string]string
	parameters   map[string]string
	wantIdentity string
}

func services() map[cloudtest.FederationService]federated {
	const own = "our-audience"
	return map[cloudtest.FederationService]federated{
		cloudtest.FederationAnthropic: {func() *exchange.Provider {
			return exchange.NewAnthropic("org-1", "rule-1", own)
		}, own,
			map[string]string{exchange.AnthropicServiceAccountAnnotation: "svac_1"},
			map[string]string{"organization_id": "org-1", "federation_rule_id": "rule-1", "service_account_id": "svac_1"},
			"svac_1"},
		cloudtest.FederationOpenAI: {func() *exchange.Provider {
			return exchange.NewOpenAI("idp-1")
		}, "https://api.openai.com/v1",
			map[string]string{exchange.OpenAIServiceAccountAnnotation: "sa-1"},
			map[string]string{"identity_provider_id": "idp-1", "service_account_id": "sa-1"}, "sa-1"},
		cloudtest.FederationDatabricks: {func() *exchange.Provider {
			return exchange.NewDatabricks("https://dbc-1.cloud.databricks.com", own)
		}, own,
			map[string]string{exchange.DatabricksClientIDAnnotation: "principal-1"},
			map[string]string{"client_id": "principal-1"}, "principal-1"},
		cloudtest.FederationConfluent: {func() *exchange.Provider { return exchange.NewConfluent(own) }, own,
			map[string]string{exchange.ConfluentIdentityPoolAnnotation: "pool-1"},
			map[string]string{"identity_pool_id": "pool-1"}, "pool-1"},
		cloudtest.FederationTailscale: {exchange.NewTailscale, "api.tailscale.com/client-1",
			map[string]string{exchange.TailscaleClientIDAnnotation: "client-1"}, map[string]string{"client_id": "client-1"},
			"client-1"},
		cloudtest.FederationVault: {func() *exchange.Provider {
			return exchange.NewVault(exchange.VaultServer{Address: "https://vault.example", Mount: "clusters/one",
				Namespace: "team/a", KubernetesAudience: own})
		}, own, map[string]string{exchange.VaultRoleAnnotation: "app"},
			map[string]string{"role": "app", "namespace": "team/a"}, "app"},
		cloudtest.FederationOctoSTS: {func() *exchange.Provider {
			return exchange.NewOctoSTS("octo-sts.dev")
		}, "octo-sts.dev",
			map[string]string{exchange.OctoSTSScopeAnnotation: "org/repo", exchange.OctoSTSIdentityAnnotation: "deploy"},
			map[string]string{"scope": "org/repo", "identity": "deploy"}, "identity=deploy,scope=org/repo"},
		cloudtest.FederationQuay: {func() *exchange.Provider {
			return exchange.NewQuay("quay.io")
		}, "https://quay.io/oauth2/federation/robot/token",
			map[string]string{exchange.QuayRobotAnnotation: "org+robot"}, map[string]string{"robot": "org+robot"}, "org+robot"},
		cloudtest.FederationDockerHub: {func() *exchange.Provider {
			return exchange.NewDockerHub("org")
		}, "https://identity.docker.com",
			map[string]string{exchange.DockerHubConnectionAnnotation: "connection-1"},
			map[string]string{"connection_id": "connection-1", "expires_in": "3600"}, "connection-1"},
	}
}

// federation is a service that lets tenant-a in. Tenant-b's ServiceAccount has
// tenant-a's annotations.
type federation struct {
	*environment
	*cloudtest.Federation
	federated
	provider *exchange.Provider
}

func newFederation(t testing.TB, which cloudtest.FederationService) *federation {
	t.Helper()
	f := &federation{environment: newEnvironment(t), federated: services()[which]}
	var accounts []client.Object
	for _, namespace := range []string{"tenant-a", "tenant-b", "controller"} {
		sa := testenv.ServiceAccount(namespace, "app")
		sa.Annotations = maps.Clone(f.annotations)
		accounts = append(accounts, sa)
	}
	f.Client = f.Issuer.Client(accounts...)
	f.Federation = f.Cloud.Federation(which)
	f.AddIssuer(f.Issuer.URL(), f.Issuer.HTTPClient())
	for _, namespace := range []string{"tenant-a", "controller"} {
		f.AddRule(cloudtest.FederationRule{Issuer: f.Issuer.URL(), Subject: subject(namespace), Audience: f.audience,
			Parameters: f.parameters})
	}
	f.provider = f.make()
	return f
}

// annotated replaces tenant-a's annotations.
func (f *federation) annotated(annotations map[string]string) auth.Option {
	return auth.WithAnnotations(annotations)
}

func eachService(t *testing.T, test func(*testing.T, *federation)) {
	t.Helper()
	for which := range services() {
		t.Run(string(which), func(t *testing.T) { test(t, newFederation(t, which)) })
	}
}

func TestServices(t *testing.T) {
	eachService(t, func(t *testing.T, f *federation) {
		var seen []string
		authorize := auth.WithPolicy(auth.Policy{Authorize: func(_ context.Context, r auth.AuthorizeRequest) error {
			seen = append(seen, r.Identity)
			return nil
		}})
		token, err := f.get(t, f.provider, authorize)
		if err != nil {
			t.Fatal(err)
		}
		id, ok := f.Identity(token.Reveal())
		if !ok || id.Subject != subject("tenant-a") || !maps.Equal(id.Parameters, f.parameters) {
			t.Errorf("the service knows %+v", id)
		}
		if left := time.Until(token.ExpiresAt()); token.Type() != "Bearer" || left > time.Hour || left < 5*time.Minute {
			t.Errorf("got %v", token)
		}
		if len(seen) != 1 || seen[0] != f.wantIdentity {
			t.Errorf("the policy saw %q", seen)
		}
	})
}

// A rule of Anthropic is for one service account, so each tenant has its own.
func TestAnthropicRuleByAnnotation(t *testing.T) {
	f := newFederation(t, cloudtest.FederationAnthropic)
	f.AddRule(cloudtest.FederationRule{Issuer: f.Issuer.URL(), Subject: subject("tenant-a"), Audience: f.audience,
		Parameters: map[string]string{"organization_id": "org-1", "federation_rule_id": "rule-a"}})
	p := exchange.NewAnthropic("org-1", "", f.audience)
	annotated := f.annotated(map[string]string{exchange.AnthropicFederationRuleAnnotation: "rule-a"})
	if _, err := f.get(t, p, annotated); err != nil {
		t.Fatal(err)
	}
	_, err := f.getFor(t.Context(), p, "tenant-b", annotated)
	testenv.CheckError(t, err, auth.ErrDenied, `federation_rule_id "rule-a"`)
	_, err = f.get(t, p)
	testenv.CheckError(t, err, auth.ErrMisconfigured, exchange.AnthropicFederationRuleAnnotation)
}

func TestAnnotationsOfServices(t *testing.T) {
	eachService(t, func(t *testing.T, f *federation) {
		for annotation := range f.annotations {
			for name, value := range map[string]string{"blank": "a b", "ampersand": "a&b", "parameter": "a&role=admin",
				"quote": `a","role":"admin`, "line": "a\nb", "percent": "a%26b",
				"letter": "ä", "question mark": "a?b", "huge": strings.Repeat("x", 257)} {
				t.Run(name, func(t *testing.T) {
					_, err := f.get(t, f.provider, f.annotated(map[string]string{annotation: value}))
					testenv.CheckError(t, err, auth.ErrMisconfigured, annotation)
				})
			}
			without := maps.Clone(f.annotations)
			delete(without, annotation)
			f.Client = f.Issuer.Client(testenv.ServiceAccount("tenant-a", "app"))
			t.Run("missing", func(t *testing.T) {
				_, err := f.get(t, f.provider, f.annotated(without))
				testenv.CheckError(t, err, auth.ErrMisconfigured, annotation)
			})
		}
		testenv.ExpectNone(t, f.Cloud.Calls("", ""))
	})
}

// An ID has the characters that a service chooses: it may be a path or end in a
// sign of base64.
func TestRequestIDsOfServices(t *testing.T) {
	f := newFederation(t, cloudtest.FederationOpenAI)
	for id, want := range map[string]string{"Root=1-67/a:b+c==": "Root=1-67/a:b+c==", "a\nb": "a b",
		"Bearer " + strings.Repeat("a1b2", 9): "Bearer [redacted]"} {
		f.Cloud.Handle("auth.openai.com", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusUnauthorized)
			_ = json.NewEncoder(w).Encode(map[string]string{"error": "invalid_grant", "request_id": id})
		}))
		_, err := f.get(t, f.provider)
		known := (*auth.Error)(nil)
		if !errors.As(err, &known) || known.RequestID != want {
			t.Errorf("%q: got %v", id, err)
		}
	}
}

// A tenant's token reaches the endpoint of the controller's Provider alone,
// whatever an annotation names.
func TestEndpointsOfServices(t *testing.T) {
	eachService(t, func(t *testing.T, f *federation) {
		own := hostOf(t, f.provider.Endpoint)
		for annotation := range f.annotations {
			for _, value := range []string{"https://evil.example/token", "../../../v1/sys/token", "x@evil.example",
				"//evil.example"} {
				annotations := maps.Clone(f.annotations)
				annotations[annotation] = value
				if _, err := f.get(t, f.provider, f.annotated(annotations)); err == nil {
					t.Errorf("%q passes", value)
				}
			}
		}
		for _, call := range f.Cloud.Log() {
			if call.Host != own {
				t.Errorf("asked %s", call.Host)
			}
		}
	})
}

// A service that repeats the request in its error reveals no token, and no
// header that the controller adds.
func TestServicesThatRepeatTheToken(t *testing.T) {
	eachService(t, func(t *testing.T, f *federation) {
		const key = "controllers-key-0123"
		f.provider.Headers = map[string]string{"X-Api-Key": key}
		var said string
		f.Cloud.Handle(hostOf(t, f.provider.Endpoint), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			_, password, _ := r.BasicAuth()
			said = string(body) + r.Header.Get("Authorization") + password + " " + r.Header.Get("X-Api-Key")
			w.WriteHeader(http.StatusBadRequest)
			_ = json.NewEncoder(w).Encode(map[string]any{"error": "invalid_grant", "error_description": said, "message": said,
				"errors": []string{said}, "request_id": said})
		}))
		_, err := f.get(t, f.provider)
		sent := regexp.MustCompile(`eyJ[\w-]+\.[\w-]+\.([\w-]+)`).FindStringSubmatch(said)
		if err == nil || len(sent) != 2 || !strings.HasSuffix(said, key) || strings.Contains(err.Error(), key) ||
			strings.Contains(err.Error(), sent[1]) || strings.Contains(err.Error(), "Basic b3Jn") {
			t.Errorf("got %v", err)
		}
	})
}

func hostOf(t *testing.T, endpoint string) string {
	t.Helper()
	u, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

func TestConformanceOfServices(t *testing.T) {
	eachService(t, func(t *testing.T, f *federation) {
		authtest.RunConformance(t, authtest.Harness{
			New: func(*testing.T) auth.Provider {
				return f.make()
			}, Options: []auth.Option{auth.WithHTTPClient(f.Cloud.Client())}, NoRegions: true,
			Fields: f.fields(),
			Client: f.Client, Good: client.ObjectKey{Namespace: "tenant-a", Name: "app"},
			Other:   client.ObjectKey{Namespace: "controller", Name: "app"},
			Refused: client.ObjectKey{Namespace: "tenant-b", Name: "app"},
			Break:   f.Break,
			Calls:   func() int { return f.Cloud.Calls("", "") },
			Secrets: func(t *testing.T, token auth.Token) []string {
				own, err := exchange.FromToken(token)
				if err != nil {
					t.Fatal(err)
				}
				return []string{own.Reveal()}
			},
		})
	})
}

// fields are other values of the provider's fields. TestConformance covers
// those that are nil here, or the service cannot send them.
func (f *federation) fields() map[string]any {
	p := f.provider
	fields := map[string]any{"Name": "other", "KubernetesAudience": "other", "AssumedLifetime": time.Minute,
		"Headers": map[string]string{"X-Other": "1"}, "Endpoint": p.Endpoint + "/v2", "Parameters": nil, "Grant": nil,
		"JSONBody":      nil,
		"DefaultScopes": nil, "AssumeBearer": nil, "AnnotatedParameters": nil}
	for _, field := range []string{"Audience", "Resource", "RequestedTokenType", "SubjectTokenType", "ActorTokenType",
		"ActorToken", "Client", "IssuerURL",
		"AllowedEndpointHosts", "AllowedAudiences", "AllowedResources", "ClientAudience", "TokenFile"} {
		fields[field] = nil
	}
	if !slices.Contains([]string{"vault", "octo-sts", "quay"}, p.Name) { // their answers never name a type
		fields["AssumeBearer"] = !p.AssumeBearer
	}
	if slices.Contains([]string{"vault", "octo-sts", "quay", "tailscale"}, p.Name) { // their form is not OAuth's
		return fields
	}
	parameters, annotated := map[string]string{"other": "1"}, maps.Clone(p.AnnotatedParameters)
	maps.Copy(parameters, p.Parameters)
	for _, annotation := range p.AnnotatedParameters { // one that the ServiceAccounts have
		annotated["another"] = annotation
	}
	fields["AnnotatedParameters"] = annotated
	fields["Parameters"], fields["JSONBody"], fields["DefaultScopes"] = parameters, !p.JSONBody, []string{"other"}
	switch {
	case p.Grant != "":
		fields["Grant"] = exchange.GrantTokenExchange
	case p.SubjectTokenType == "":
		fields["Grant"] = exchange.GrantJWTBearer
	}
	return fields
}

func TestVaultsAnswers(t *testing.T) {
	f := newFederation(t, cloudtest.FederationVault)
	for name, tc := range map[string]struct {
		body   string
		reason provider.Reason
		want   string
	}{
		"second factor": {`{"auth":{"client_token":"","mfa_requirement":{"mfa_request_id":"1"}}}`, auth.ErrMisconfigured,
			"second factor"},
		"no client_token": {`{"request_id":"r-2","auth":null}`, auth.ErrMisconfigured, "client_token"},
		"errors":          {`{"errors":["permission denied"]}`, auth.ErrDenied, "permission denied"},
		"no errors": {`{"errors":null,"auth":{"client_token":"hvs.x","lease_duration":0}}`, auth.ErrUnavailable,
			"expires_in"},
		"no lease": {`{"auth":{"client_token":"hvs.x","lease_duration":0}}`, auth.ErrUnavailable, "expires_in"},
	} {
		t.Run(name, func(t *testing.T) {
			defer f.Cloud.AddFault(cloudtest.Fault{Rewrite: func([]byte) []byte { return []byte(tc.body) }})()
			_, err := f.get(t, f.provider)
			testenv.CheckError(t, err, tc.reason, tc.want)
		})
	}
}

func TestRegistriesOfServices(t *testing.T) {
	for which, want := range map[cloudtest.FederationService]struct{ repository, user string }{
		cloudtest.FederationQuay:      {"quay.io/org/app", "org+robot"},
		cloudtest.FederationDockerHub: {"docker.io/org/app", "org"},
	} {
		t.Run(string(which), func(t *testing.T) {
			f := newFederation(t, which)
			set, err := auth.NewProviderSet(f.provider)
			if err != nil {
				t.Fatal(err)
			}
			tag, err := name.NewTag(want.repository)
			if err != nil {
				t.Fatal(err)
			}
			authenticator, err := auth.NewKeychain(set, f.options("tenant-a")...).Resolve(tag)
			if err != nil {
				t.Fatal(err)
			}
			config, err := authenticator.Authorization()
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := f.Identity(config.Password); !ok || config.Username != want.user {
				t.Errorf("got user %q", config.Username)
			}
			if _, err := auth.GetArtifactRegistryCredentials(t.Context(), f.provider, want.repository,
				f.options("tenant-a")...); err != nil {
				t.Error(err)
			}
			for _, other := range []string{"quay.io.evil.example/org/app", "docker.io.evil.example/app", "ghcr.io/org/app",
				"evil.example/quay.io/app"} {
				_, err := auth.GetArtifactRegistryCredentials(t.Context(), f.provider, other, f.options("tenant-a")...)
				testenv.CheckError(t, err, auth.ErrMisconfigured, "is not a registry of this service")
			}
		})
	}
	t.Run("a robot with a colon", func(t *testing.T) {
		f := newFederation(t, cloudtest.FederationQuay)
		_, err := f.get(t, f.provider, auth.WithAnnotations(map[string]string{exchange.QuayRobotAnnotation: "org+robot:x"}))
		testenv.CheckError(t, err, auth.ErrMisconfigured, `"org+robot:x" is not a robot account`)
	})
}

// inMemory reads a ServiceAccount as an informer's cache does without its deep
// copy, and leaves the rest to a client.
type inMemory struct {
	*cloudtest.Client
	sa *corev1.ServiceAccount
}

func (c inMemory) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if sa, ok := obj.(*corev1.ServiceAccount); ok {
		*sa = *c.sa
	}
	return nil
}

// Hits of a service allocate what those of a plain server do. Two services join
// the annotations of a ServiceAccount to a text on each call. The
// ServiceAccount is read without an allocation: the fake client's reads differ
// by one.
func TestHitsOfServicesAllocateNothing(t *testing.T) {
	joined := map[cloudtest.FederationService]float64{cloudtest.FederationTailscale: 2, cloudtest.FederationOctoSTS: 2}
	tokens, key := testenv.Cache(t), client.ObjectKey{Namespace: "tenant-a", Name: "app"}
	allocations := func(f *federation, p *exchange.Provider) float64 {
		sa := &corev1.ServiceAccount{}
		if err := f.Client.Get(t.Context(), key, sa); err != nil {
			t.Fatal(err)
		}
		source := auth.NewAccessTokenSource(p, auth.WithServiceAccount(key, inMemory{f.Client, sa}),
			auth.WithHTTPClient(f.Cloud.Client()), testenv.WithCache(tokens, "tenant-a"))
		get := func() {
			if _, err := source.Token(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		get()
		return testing.AllocsPerRun(100, get)
	}
	plain := newFederation(t, cloudtest.FederationAnthropic) // the same ServiceAccount
	lowest := allocations(plain, plain.environment.provider())
	for which := range services() {
		t.Run(string(which), func(t *testing.T) {
			f := newFederation(t, which)
			if n := allocations(f, f.provider); n > lowest+joined[which] {
				t.Errorf("a hit allocates %v times, %v at a plain server", n, lowest)
			}
		})
	}
}
