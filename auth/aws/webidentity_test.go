package aws_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

const (
	azureTenant   = "11111111-2222-3333-4444-555555555555"
	azureClient   = "aaaaaaaa-2222-3333-4444-555555555555"
	poolOfAWS     = "projects/123456789012/locations/global/workloadIdentityPools/amazon/providers/roles"
	audienceOfGCP = "//iam.googleapis.com/" + poolOfAWS
)

// federation is an environment in which other services trust the roles of the
// tenants. The ServiceAccounts "app" have all annotations.
type federation struct {
	*environment
	issuer string // of the AWS account
	source *aws.WebIdentityIssuer
}

// receiver is a service that trusts the roles.
type receiver struct {
	provider auth.Provider
	audience string
	subject  func(auth.Token) string // of the credential
}

func newFederation(t *testing.T, more ...client.Object) *federation {
	t.Helper()
	t.Setenv("AZURE_TENANT_ID", "")
	for _, tenant := range []string{"tenant-a", "tenant-b"} {
		more = append(more, outbound(tenant, "outbound", role(tenant)))
	}
	more = append(more, outbound("tenant-b", "thief", role("tenant-a")), outbound("tenant-a", "bad", "no role"))
	f := &federation{environment: newEnvironment(t, more...)}
	f.issuer = f.Cloud.AWS().EnableOutboundFederation(account)
	f.Cloud.Azure().AddTenant("login.microsoftonline.com", azureTenant)
	for _, tenant := range []string{"tenant-a", "tenant-b"} {
		f.Cloud.AWS().SetRole(role(tenant), cloudtest.Trust{Issuer: f.Issuer.URL(),
			Subjects: []string{"system:serviceaccount:" + tenant + ":app",
				"system:serviceaccount:" + tenant + ":outbound"}})
		f.trustAzure(azure.DefaultAudience, role(tenant))
	}
	f.Cloud.GCP().SetWorkloadIdentityProvider(poolOfAWS, cloudtest.WorkloadIdentityProvider{Issuer: f.issuer,
		Fetch: f.Cloud.Client()})
	o := f.Cloud.OAuth()
	o.AddIssuer(f.issuer, f.Cloud.Client(), o.TokenEndpoint())
	o.AddGrant(cloudtest.OAuthGrant{Issuer: f.issuer, Subjects: []string{role("tenant-a"), role("tenant-b")}})
	ai := f.Cloud.Federation(cloudtest.FederationOpenAI)
	ai.AddIssuer(f.issuer, f.Cloud.Client())
	for _, tenant := range []string{"tenant-a", "tenant-b"} {
		ai.AddRule(cloudtest.FederationRule{Issuer: f.issuer, Subject: role(tenant), Audience: "https://api.openai.com/v1",
			Parameters: map[string]string{"identity_provider_id": "idp-1", "service_account_id": "sa-1"}})
	}
	f.source = f.newSource(t, aws.WebIdentity{Issuers: map[string]string{account: f.issuer}})
	return f
}

// outbound returns a ServiceAccount with the annotations of all receivers.
func outbound(namespace, name, roleARN string) *corev1.ServiceAccount {
	return testenv.ServiceAccount(namespace, name, aws.RoleARNAnnotation, roleARN, azure.ClientIDAnnotation,
		azureClient,
		azure.TenantIDAnnotation, azureTenant, gcp.WorkloadIdentityProviderAnnotation, poolOfAWS,
		exchange.OpenAIServiceAccountAnnotation, "sa-1")
}

func (f *federation) trustAzure(audience, subject string) {
	f.Cloud.Azure().AddFederatedCredential(azureTenant, azureClient, cloudtest.FederatedCredential{Issuer: f.issuer,
		Subject: subject, Audience: audience, Fetch: f.Cloud.Client()})
}

// controllers are the controller's options of the source.
func (f *federation) controllers() []auth.Option {
	return []auth.Option{auth.WithSTSRegion("eu-central-1"), auth.WithHTTPClient(f.Cloud.Client())}
}

func (f *federation) newSource(t *testing.T, config aws.WebIdentity) *aws.WebIdentityIssuer {
	t.Helper()
	source, err := aws.Impatient().NewWebIdentityIssuer(config, f.controllers()...)
	if err != nil {
		t.Fatal(err)
	}
	return source
}

func (f *federation) receivers() map[string]receiver {
	return map[string]receiver{
		"azure": {&azure.Provider{}, azure.DefaultAudience, func(token auth.Token) string {
			own, _ := azure.FromToken(token)
			id, _ := f.Cloud.Azure().Identity(own.AccessToken().Token)
			return id.Subject
		}},
		"gcp": {&gcp.Provider{}, audienceOfGCP, func(token auth.Token) string {
			own, _ := gcp.FromToken(token)
			id, _ := f.Cloud.GCP().Identity(own.AccessToken())
			return id.Subject
		}},
		"exchange": {&exchange.Provider{Endpoint: f.Cloud.OAuth().TokenEndpoint()}, f.Cloud.OAuth().TokenEndpoint(),
			func(token auth.Token) string {
				own, _ := exchange.FromToken(token)
				id, _ := f.Cloud.OAuth().Identity(own.Reveal())
				return id.Subject
			}},
		"openai": {exchange.NewOpenAI("idp-1"), "https://api.openai.com/v1", func(token auth.Token) string {
			own, _ := exchange.FromToken(token)
			id, _ := f.Cloud.Federation(cloudtest.FederationOpenAI).Identity(own.Reveal())
			return id.Subject
		}},
	}
}

// ask returns the options of a call for a ServiceAccount.
func (f *federation) ask(namespace, name string, more ...auth.Option) []auth.Option {
	return append([]auth.Option{auth.WithSubjectIssuer(f.source),
		auth.WithServiceAccount(client.ObjectKey{Namespace: namespace, Name: name}, f.Client),
		testenv.Owner(namespace), auth.WithHTTPClient(f.Cloud.Client())}, more...)
}

// A tenant's role is the subject at each service. The services share the role's
// credentials, and each has a token of its own.
func TestRoleIsTheSubject(t *testing.T) {
	f := newFederation(t)
	tokens := testenv.Cache(t)
	for name, r := range f.receivers() {
		for _, tenant := range []string{"tenant-a", "tenant-b"} {
			opts := f.ask(tenant, "outbound", testenv.WithCache(tokens, tenant))
			first, err := auth.GetAccessToken(t.Context(), r.provider, opts...)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if got := r.subject(first); got != role(tenant) {
				t.Errorf("%s: %s is %q", name, tenant, got)
			}
			again, err := auth.GetAccessToken(t.Context(), r.provider, opts...)
			if err != nil || again != first {
				t.Errorf("%s: the credential was not cached, %v", name, err)
			}
		}
	}
	if n := f.Cloud.Calls("sts", "AssumeRoleWithWebIdentity"); n != 2 {
		t.Errorf("%d sessions for two roles", n)
	}
	audiences := map[string]int{}
	for _, call := range f.Cloud.Log() {
		if call.Action == "GetWebIdentityToken" {
			audiences[call.Parameters["Audience.member.1"]]++
			if call.Host != "sts.eu-central-1.amazonaws.com" || call.Parameters["SigningAlgorithm"] != "RS256" ||
				call.Parameters["DurationSeconds"] != "300" {
				t.Errorf("call %+v", call)
			}
		}
	}
	for name, r := range f.receivers() {
		if audiences[r.audience] != 2 {
			t.Errorf("%s: tokens by audience %v", name, audiences)
		}
	}
}

// Access ends with the role or its permission at the next exchange.
func TestRoleAsSubjectIsRevoked(t *testing.T) {
	for name, tc := range map[string]struct {
		revoke func(f *federation) error
		reason provider.Reason
		want   []string
	}{
		"role deleted": {func(f *federation) error { f.Cloud.AWS().RemoveRole(role("tenant-a")); return nil },
			auth.ErrDenied, []string{"AccessDenied", "sts:GetWebIdentityToken"}},
		"no permission": {func(f *federation) error {
			f.Cloud.AWS().Deny(role("tenant-a"), "sts:GetWebIdentityToken")
			return nil
		}, auth.ErrDenied, []string{"aws", "let a policy of the role allow sts:GetWebIdentityToken",
			azure.DefaultAudience}},
		"federation disabled": {func(f *federation) error { f.Cloud.AWS().DisableOutboundFederation(account); return nil },
			auth.ErrMisconfigured, []string{"aws iam enable-outbound-web-identity-federation", account}},
		"no longer trusted": {func(f *federation) error {
			f.Cloud.Azure().RemoveFederatedCredentials(azureTenant, azureClient)
			return nil
		}, auth.ErrDenied, []string{role("tenant-a"), "the issuer \"https://"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFederation(t)
			opts := f.ask("tenant-a", "outbound", testenv.Cached(t, "tenant-a"))
			if _, err := auth.GetAccessToken(t.Context(), &azure.Provider{}, opts...); err != nil {
				t.Fatal(err)
			}
			if err := tc.revoke(f); err != nil {
				t.Fatal(err)
			}
			// Another target of the same role is not cached.
			other := auth.WithScopes("https://vault.azure.net/.default")
			_, err := auth.GetAccessToken(t.Context(), &azure.Provider{}, append(opts, other)...)
			testenv.CheckError(t, err, tc.reason, append(tc.want, `ServiceAccount "tenant-a/outbound"`)...)
		})
	}
}

// The first role of a chain counts on hits: the subject names the last one
// alone.
func TestFirstRoleOfAChainCountsOnHits(t *testing.T) {
	const hub = "arn:aws:iam::" + account + ":role/hub"
	f := newFederation(t)
	f.Cloud.AWS().SetRole(hub, cloudtest.Trust{Principals: []string{role("tenant-a")}})
	f.trustAzure(azure.DefaultAudience, hub)
	source, err := (&aws.Provider{}).NewWebIdentityIssuer(aws.WebIdentity{Issuers: map[string]string{account: f.issuer}},
		append(f.controllers(), aws.WithAssumeRole(aws.AssumeRole{RoleARN: hub}))...)
	if err != nil {
		t.Fatal(err)
	}
	f.source = source
	opts := f.ask("tenant-a", "outbound", testenv.Cached(t, "tenant-a"))
	if _, err := auth.GetAccessToken(t.Context(), &azure.Provider{}, opts...); err != nil {
		t.Fatal(err)
	}
	sa := &corev1.ServiceAccount{}
	if err := f.Client.Get(t.Context(), client.ObjectKey{Namespace: "tenant-a", Name: "outbound"}, sa); err != nil {
		t.Fatal(err)
	}
	sa.Annotations[aws.RoleARNAnnotation] = role("harmless")
	if err := f.Client.Update(t.Context(), sa); err != nil {
		t.Fatal(err)
	}
	_, err = auth.GetAccessToken(t.Context(), &azure.Provider{}, opts...)
	testenv.CheckError(t, err, auth.ErrDenied, role("harmless"))
}

// What STS returns is compared with the role and the issuer before it goes
// anywhere. A tenant that names the role of another gets no token.
func TestRoleAsSubjectIsChecked(t *testing.T) {
	for name, tc := range map[string]struct {
		config aws.WebIdentity
		sa     string
		reason provider.Reason
		want   string
		tokens int
	}{
		"issuer": {aws.WebIdentity{Issuers: map[string]string{account: "https://else.example"}},
			"outbound", auth.ErrDenied, `not of "https://else.example"`, 1},
		"another account": {aws.WebIdentity{Issuers: map[string]string{"999999999999": "https://else.example"}},
			"outbound", "", "", 1},
		"another's role": {aws.WebIdentity{}, "thief", auth.ErrDenied, "AssumeRoleWithWebIdentity", 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFederation(t)
			f.source = f.newSource(t, tc.config)
			namespace := "tenant-a"
			if tc.sa == "thief" {
				namespace = "tenant-b"
			}
			_, err := auth.GetAccessToken(t.Context(), &azure.Provider{}, f.ask(namespace, tc.sa)...)
			if tc.reason == "" && err != nil {
				t.Error(err)
			} else if tc.reason != "" {
				testenv.CheckError(t, err, tc.reason, tc.want)
			}
			entra := 0
			if tc.reason == "" {
				entra = 1
			}
			if f.Cloud.Calls("sts", "GetWebIdentityToken") != tc.tokens || f.Cloud.Calls("entra", "") != entra {
				t.Errorf("calls %+v", f.Cloud.Log())
			}
		})
	}
}

// The Policy sees both exchanges. The audiences, scopes and proxy of the call
// are for the other service alone.
func TestRoleAsSubjectGetsNothingElseOfTheCall(t *testing.T) {
	f := newFederation(t)
	f.trustAzure("other", role("tenant-a"))
	var seen []auth.AuthorizeRequest
	policy := auth.WithPolicy(auth.Policy{Audiences: []string{"other"}, Authorize: func(_ context.Context,
		r auth.AuthorizeRequest) error {
		seen = append(seen, r)
		return nil
	}})
	opts := f.ask("tenant-a", "outbound", policy, auth.WithAudiences("other"), auth.WithClusterID("c"),
		auth.WithScopes("https://vault.azure.net/.default"))
	if _, err := auth.GetAccessToken(t.Context(), &azure.Provider{}, opts...); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 2 || seen[0].Provider != "azure" || seen[0].Subject != role("tenant-a") ||
		seen[0].Audiences[0] != "other" ||
		seen[1].Provider != "aws" || seen[1].Identity != role("tenant-a") ||
		seen[1].Audiences[0] != aws.DefaultAudience ||
		seen[1].Subject != "" || seen[1].Owner != testenv.Object("tenant-a") {
		t.Errorf("the Policy saw %+v", seen)
	}
	proxy, asked := testenv.RefusingProxy(t)
	_, err := auth.GetAccessToken(t.Context(), &azure.Provider{}, append(opts, auth.WithHTTPClient(nil),
		auth.WithProxyURL(*proxy))...)
	testenv.CheckError(t, err, auth.ErrUnavailable, "no answer through the proxy")
	for _, request := range asked() {
		if !strings.Contains(request, "login.microsoftonline.com") {
			t.Errorf("the proxy was asked for %q", request)
		}
	}
	if n := f.Cloud.Calls("sts", "GetWebIdentityToken"); n != 2 {
		t.Errorf("%d tokens, want 2", n)
	}
}

// The controller's own role is the subject of calls without a ServiceAccount,
// here one of IAM roles for service accounts.
func TestControllersRoleIsTheSubject(t *testing.T) {
	f := newFederation(t)
	f.Cloud.AWS().SetRole(role("controller"), cloudtest.Trust{Issuer: f.Issuer.URL(),
		Subjects: []string{"system:serviceaccount:system:controller"}})
	f.trustAzure(azure.DefaultAudience, role("controller"))
	clearEnvironment(t)
	t.Setenv("AWS_ROLE_ARN", role("controller"))
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", f.TokenFile(t, "system", "controller", aws.DefaultAudience))
	identity := auth.WithControllerAnnotations(map[string]string{azure.ClientIDAnnotation: azureClient,
		azure.TenantIDAnnotation: azureTenant})
	call := func(config aws.WebIdentity) (auth.Token, error) {
		return auth.GetAccessToken(t.Context(), &azure.Provider{}, auth.WithSubjectIssuer(f.newSource(t, config)),
			identity,
			testenv.Cached(t, "tenant-a"), auth.WithHTTPClient(f.Cloud.Client()))
	}
	got, err := call(aws.WebIdentity{RoleARN: role("controller")})
	if err != nil {
		t.Fatal(err)
	}
	if subject := f.receivers()["azure"].subject(got); subject != role("controller") {
		t.Errorf("the subject is %q", subject)
	}
	_, err = call(aws.WebIdentity{RoleARN: role("tenant-a")})
	testenv.CheckError(t, err, auth.ErrDenied, `for "`+role("controller")+`", not for "`+role("tenant-a")+`"`)
	_, err = call(aws.WebIdentity{})
	testenv.CheckError(t, err, auth.ErrMisconfigured, "the controller's own role is not known")
}

// EKS Pod Identity gives the controller its role, whose name the credentials do
// not tell.
func TestControllersRoleOfPodIdentityIsTheSubject(t *testing.T) {
	f := newFederation(t)
	ask := []auth.Option{auth.WithServiceAccount(client.ObjectKey{Namespace: "tenant-a", Name: "outbound"}, f.Client),
		testenv.Owner("tenant-a"), auth.WithHTTPClient(f.Cloud.Client()), auth.WithSTSRegion("eu-central-1")}
	session, err := get(t, &aws.Provider{}, ask...)
	if err != nil {
		t.Fatal(err)
	}
	f.Cloud.Handle("169.254.170.23", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { // the agent
		c := session.Credentials()
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"AccessKeyId":%q,"SecretAccessKey":%q,"Token":%q,"Expiration":%q,"AccountId":%q}`,
			c.AccessKeyID, c.SecretAccessKey, c.SessionToken, c.Expires.UTC().Format(time.RFC3339), account)
	}))
	clearEnvironment(t)
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v1/credentials")
	t.Setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "pod-token")
	got, err := auth.GetAccessToken(t.Context(), exchange.NewOpenAI("idp-1"), auth.WithHTTPClient(f.Cloud.Client()),
		auth.WithSubjectIssuer(f.newSource(t, aws.WebIdentity{RoleARN: role("tenant-a")})),
		auth.WithControllerAnnotations(map[string]string{exchange.OpenAIServiceAccountAnnotation: "sa-1"}))
	if err != nil {
		t.Fatal(err)
	}
	if subject := f.receivers()["openai"].subject(got); subject != role("tenant-a") {
		t.Errorf("the subject is %q", subject)
	}
}

// A session that STS no longer accepts is replaced, once.
func TestRoleAsSubjectReplacesItsSession(t *testing.T) {
	f := newFederation(t)
	opts := f.ask("tenant-a", "outbound", testenv.Cached(t, "tenant-a"))
	refuse := cloudtest.Fault{Service: "sts", Action: "GetWebIdentityToken", Status: http.StatusForbidden,
		Code: "ExpiredToken", Message: "expired", Times: 1}
	f.Cloud.AddFault(refuse)
	if _, err := auth.GetAccessToken(t.Context(), &azure.Provider{}, opts...); err != nil {
		t.Error(err)
	}
	if n := f.Cloud.Calls("sts", "GetWebIdentityToken"); n != 2 {
		t.Errorf("%d tries, want 2", n)
	}
}

func TestWebIdentityIsChecked(t *testing.T) {
	for name, tc := range map[string]struct {
		config aws.WebIdentity
		opts   []auth.Option
		option string
	}{
		"role":      {aws.WebIdentity{RoleARN: "arn:aws:iam::1:user/x"}, nil, "aws.WebIdentity.RoleARN"},
		"algorithm": {aws.WebIdentity{SigningAlgorithm: "HS256"}, nil, "aws.WebIdentity.SigningAlgorithm"},
		"too short": {aws.WebIdentity{Lifetime: 59 * time.Second}, nil, "aws.WebIdentity.Lifetime"},
		"too long":  {aws.WebIdentity{Lifetime: time.Hour + time.Second}, nil, "aws.WebIdentity.Lifetime"},
		"part of seconds": {aws.WebIdentity{Lifetime: time.Minute + time.Millisecond}, nil,
			"aws.WebIdentity.Lifetime"},
		"tag":    {aws.WebIdentity{Tags: map[string]string{"aws:x": "y"}}, nil, "aws.WebIdentity.Tags"},
		"region": {aws.WebIdentity{}, []auth.Option{auth.WithSTSRegion("no region")}, "auth.WithSTSRegion"},
		"global endpoint": {aws.WebIdentity{}, []auth.Option{auth.WithSTSEndpoint("https://sts.amazonaws.com")},
			"auth.WithSTSEndpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := (&aws.Provider{}).NewWebIdentityIssuer(tc.config,
				append([]auth.Option{auth.WithSTSRegion("eu-central-1")}, tc.opts...)...)
			var known *auth.Error
			if !errors.As(err, &known) || !errors.Is(err, auth.ErrMisconfigured) || known.Option != tc.option {
				t.Errorf("got %v", err)
			}
		})
	}
}

// Whatever shapes the tokens is in the key, and a hit allocates nothing.
func TestWebIdentityKey(t *testing.T) {
	f, seen := newFederation(t), map[string]string{}
	for name, tc := range map[string]struct {
		config aws.WebIdentity
		opt    auth.Option
	}{
		"base":      {},
		"algorithm": {config: aws.WebIdentity{SigningAlgorithm: "ES384"}},
		"lifetime":  {config: aws.WebIdentity{Lifetime: time.Hour}},
		"tag":       {config: aws.WebIdentity{Tags: map[string]string{"a": "b"}}},
		"region":    {opt: auth.WithSTSRegion("us-east-1")},
		"endpoint":  {opt: auth.WithSTSEndpoint("https://sts.eu-west-1.amazonaws.com")},
		"role":      {opt: aws.WithAssumeRole(aws.AssumeRole{RoleARN: role("next")})},
	} {
		source, err := (&aws.Provider{}).NewWebIdentityIssuer(tc.config, append(f.controllers(), tc.opt)...)
		if err != nil {
			t.Fatal(err)
		}
		if other, dup := seen[source.Key()]; dup {
			t.Errorf("%s has the key of %s", name, other)
		}
		seen[source.Key()] = name
	}
	sa, call := outbound("tenant-a", "app", role("tenant-a")), &auth.Options{}
	if n := testing.AllocsPerRun(100, func() { _, _ = f.source.Subject(sa, call) }); n != 0 {
		t.Errorf("Subject makes %v allocations", n)
	}
}
