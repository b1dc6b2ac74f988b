package aws_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	"go.uber.org/goleak"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/awsname"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(kubetest.Main(m)) }

const account = "123456789012"

// environment is a cluster with two tenants, and a cloud with a role for each.
type environment struct{ *testenv.Environment }

func role(tenant string) string { return "arn:aws:iam::" + account + ":role/" + tenant }

func newEnvironment(t testing.TB, more ...client.Object) *environment {
	t.Helper()
	for _, tenant := range []string{"tenant-a", "tenant-b"} {
		more = append(more, testenv.ServiceAccount(tenant, "app", aws.RoleARNAnnotation, role(tenant)))
	}
	w := &environment{testenv.New(t, more...)}
	w.Cloud.AWS().AddOIDCProvider(account, w.Issuer.URL(), w.Issuer.HTTPClient(), aws.DefaultAudience)
	for _, tenant := range []string{"tenant-a", "tenant-b"} {
		w.trust(role(tenant), tenant, "app")
	}
	return w
}

// trust creates a role that one ServiceAccount may assume.
func (w *environment) trust(arn, namespace, name string) {
	w.Cloud.AWS().SetRole(arn,
		cloudtest.Trust{Issuer: w.Issuer.URL(), Subjects: []string{testenv.Subject(namespace, name)}})
}

func (w *environment) options(namespace, name string, more ...auth.Option) []auth.Option {
	return w.Options(namespace, name, append([]auth.Option{auth.WithSTSRegion("eu-central-1")}, more...)...)
}

func (w *environment) get(t testing.TB, namespace, name string, more ...auth.Option) (*aws.Token, error) {
	t.Helper()
	return get(t, aws.Impatient(), w.options(namespace, name, more...)...)
}

func get(t testing.TB, p *aws.Provider, opts ...auth.Option) (*aws.Token, error) {
	t.Helper()
	token, err := auth.GetAccessToken(t.Context(), p, opts...)
	if err != nil {
		return nil, err
	}
	return aws.FromToken(token)
}

func TestServiceAccountGetsItsRole(t *testing.T) {
	w := newEnvironment(t)
	token, err := w.get(t, "tenant-a", "app")
	if err != nil {
		t.Fatal(err)
	}
	id, ok := w.Cloud.AWS().Identity(token.AccessKeyID())
	if !ok || id.RoleARN != role("tenant-a") || id.SessionName != "tenant-a.app" ||
		id.Subject != "system:serviceaccount:tenant-a:app" {
		t.Errorf("got the credentials of %+v", id)
	}
	if token.AccountID() != account || token.SessionName() != "tenant-a.app" || token.AssumedRoleARN() != id.ARN ||
		token.GetDuration() > time.Hour || token.GetDuration() < 59*time.Minute ||
		!strings.HasPrefix(fmt.Sprint(token), "AWS credentials "+token.AccessKeyID()+", redacted") {
		t.Errorf("token: %v, account %q, session %q", token, token.AccountID(), token.SessionName())
	}
	if calls := w.Cloud.Log(); len(calls) != 1 || calls[0].Host != "sts.eu-central-1.amazonaws.com" {
		t.Errorf("calls: %+v", calls)
	}
}

// The adapter's credentials work in a client of the SDK, and end with the
// context of the call.
func TestCredentialsProvider(t *testing.T) {
	w := newEnvironment(t)
	tokens := testenv.Cache(t)
	creds := aws.NewCredentialsProvider(w.options("tenant-a", "app", testenv.WithCache(tokens, "tenant-a"))...)
	sdkClient := sts.New(sts.Options{Region: "eu-central-1", HTTPClient: w.Cloud.Client(), Credentials: creds})
	for range 3 {
		who, err := sdkClient.GetCallerIdentity(t.Context(), nil)
		if err != nil || sdk.ToString(who.Arn) != "arn:aws:sts::123456789012:assumed-role/tenant-a/tenant-a.app" {
			t.Fatalf("STS knows %+v, %v, want the session of the role tenant-a", who, err)
		}
	}
	if n := w.Cloud.Calls("sts", "AssumeRoleWithWebIdentity"); n != 1 {
		t.Errorf("%d exchanges for three calls", n)
	}
	c, err := creds.Retrieve(t.Context())
	if err != nil || !c.CanExpire || c.Expires.IsZero() || c.AccountID != account || c.Source != "workloadid" {
		t.Errorf("credentials: CanExpire %t, account %q, source %q, %v", c.CanExpire, c.AccountID, c.Source, err)
	}
	w.Cloud.AddFault(cloudtest.Fault{Hang: true})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := aws.NewCredentialsProvider(w.options("tenant-b", "app")...).Retrieve(ctx); !errors.Is(err,
		context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

// The error of a refusal has what an administrator of the role needs.
func TestRefusalOfTheRole(t *testing.T) {
	w := newEnvironment(t, testenv.ServiceAccount("tenant-b", "thief", aws.RoleARNAnnotation, role("tenant-a")))
	_, err := w.get(t, "tenant-b", "thief")
	testenv.CheckError(t, err, auth.ErrDenied, `aws: ServiceAccount "tenant-b/thief"`, role("tenant-a"), "AccessDenied",
		"HTTP 403", `"system:serviceaccount:tenant-b:thief"`, "trust policy")
	var api smithy.APIError
	var known *auth.Error
	if !errors.As(err, &api) || !errors.As(err, &known) || known.RequestID == "" || known.Code != "AccessDenied" {
		t.Errorf("the SDK's error or the request ID is lost: %+v", known)
	}
	var response *awshttp.ResponseError
	if !errors.As(err, &response) {
		t.Fatalf("the answer is lost: %v", err)
	}
	// An error stays in the cache for minutes. The token in the request does
	// not.
	if r := response.Response.Response; r.Request != nil || r.TLS != nil || r.Body != http.NoBody {
		t.Error("the request or the connection is kept")
	}
}

func TestAnnotationsThatAreMalformed(t *testing.T) {
	w := newEnvironment(t,
		testenv.ServiceAccount("tenant-a", "none"),
		testenv.ServiceAccount("tenant-a", "empty", aws.RoleARNAnnotation, ""),
		testenv.ServiceAccount("tenant-a", "session", aws.RoleARNAnnotation,
			"arn:aws:sts::123456789012:assumed-role/app/session"),
		testenv.ServiceAccount("tenant-a", "huge", aws.RoleARNAnnotation, strings.Repeat("x", 200_000)),
		testenv.ServiceAccount("tenant-a", "escape", aws.RoleARNAnnotation, "arn:aws:iam::123456789012:role/\x1b[31m\n"),
		testenv.ServiceAccount("tenant-a", "soon", aws.RoleARNAnnotation, role("tenant-a"),
			aws.TokenExpirationAnnotation, "1"),
		testenv.ServiceAccount("tenant-a", "never", aws.RoleARNAnnotation, role("tenant-a"), aws.TokenExpirationAnnotation,
			"99999999999999999999"),
		testenv.ServiceAccount("tenant-a", "word", aws.RoleARNAnnotation, role("tenant-a"),
			aws.TokenExpirationAnnotation, "1h"),
		testenv.ServiceAccount("tenant-a", "relay", aws.RoleARNAnnotation, role("tenant-a"), aws.AudienceAnnotation, "vault"),
		testenv.ServiceAccount("tenant-a", "cluster", aws.RoleARNAnnotation, role("tenant-a"), aws.AudienceAnnotation,
			"https://kubernetes.default.svc"),
	)
	for name, tc := range map[string]struct {
		reason provider.Reason
		want   []string
	}{
		"none":    {auth.ErrMisconfigured, []string{aws.RoleARNAnnotation, "missing", "arn:aws:iam::<account>:role/<name>"}},
		"empty":   {auth.ErrMisconfigured, []string{`begin with "arn:"`}},
		"session": {auth.ErrMisconfigured, []string{"session (sts)", `"arn:aws:sts::123456789012:assumed-role/app/session"`}},
		"huge":    {auth.ErrMisconfigured, []string{"xxx"}},
		"escape":  {auth.ErrMisconfigured, []string{`\x1b`, `\n`}},
		"soon":    {auth.ErrMisconfigured, []string{aws.TokenExpirationAnnotation, `"1"`, "600"}},
		"never":   {auth.ErrMisconfigured, []string{`"99999999999999999999"`}},
		"word":    {auth.ErrMisconfigured, []string{`"1h"`}},
		"relay":   {auth.ErrDenied, []string{`"vault"`, "Policy.Audiences"}},
		"cluster": {auth.ErrDenied, []string{`"https://kubernetes.default.svc"`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.get(t, "tenant-a", name)
			testenv.CheckError(t, err, tc.reason, tc.want...)
			if len(err.Error()) > 1500 {
				t.Errorf("the message has %d bytes", len(err.Error()))
			}
		})
	}
	testenv.ExpectNone(t, w.Requests())
}

func TestAudienceThatTheControllerAllows(t *testing.T) {
	w := newEnvironment(t, testenv.ServiceAccount("tenant-a", "other", aws.RoleARNAnnotation, role("other"),
		aws.AudienceAnnotation, "our-audience"))
	w.Cloud.AWS().AddOIDCProvider(account, w.Issuer.URL(), w.Issuer.HTTPClient(), "our-audience")
	w.Cloud.AWS().SetRole(role("other"),
		cloudtest.Trust{Issuer: w.Issuer.URL(), SubjectPatterns: []string{"system:serviceaccount:tenant-a:*"}})
	if _, err := w.get(t, "tenant-a", "other",
		auth.WithPolicy(auth.Policy{Audiences: []string{"our-audience"}})); err != nil {
		t.Error(err)
	}
}

// The region is the call's, or that of the environment.
func TestRegion(t *testing.T) {
	t.Setenv("AWS_REGION", "")
	w := newEnvironment(t)
	_, err := get(t, &aws.Provider{}, w.Options("tenant-a", "app")...)
	testenv.CheckError(t, err, auth.ErrMisconfigured, "WithSTSRegion", "AWS_REGION")
	_, err = w.get(t, "tenant-a", "app", auth.WithSTSRegion("eu-central-1.evil.example/"))
	testenv.CheckError(t, err, auth.ErrMisconfigured, `"eu-central-1.evil.example/"`)
	testenv.ExpectNone(t, w.Requests())
	t.Setenv("AWS_REGION", "eu-west-1")
	if _, err := get(t, &aws.Provider{}, w.Options("tenant-a", "app")...); err != nil {
		t.Fatal(err)
	}
	if got, want := w.Cloud.Log()[0].Host, "sts.eu-west-1.amazonaws.com"; got != want {
		t.Errorf("%s was asked, want %s", got, want)
	}
}

func TestEndpoints(t *testing.T) {
	for want, tc := range map[string]struct {
		provider *aws.Provider
		opts     []auth.Option
	}{
		"sts.eu-central-1.amazonaws.com": {&aws.Provider{}, nil},
		"sts-fips.us-east-1.amazonaws.com": {&aws.Provider{UseFIPSEndpoint: true},
			[]auth.Option{auth.WithSTSRegion("us-east-1")}},
		"sts.eu-central-1.api.aws": {&aws.Provider{UseDualStackEndpoint: true},
			nil},
		"sts.cn-north-1.amazonaws.com.cn": {&aws.Provider{},
			[]auth.Option{auth.WithSTSRegion("cn-north-1")}},
		"sts.us-gov-west-1.amazonaws.com": {&aws.Provider{},
			[]auth.Option{auth.WithSTSRegion("us-gov-west-1")}},
		"sts.us-iso-east-1.c2s.ic.gov": {&aws.Provider{},
			[]auth.Option{auth.WithSTSRegion("us-iso-east-1")}},
		"sts.amazonaws.com": {&aws.Provider{UseFIPSEndpoint: true},
			[]auth.Option{auth.WithSTSEndpoint("https://sts.amazonaws.com")}},
		"vpce-0abc123def4567890-ab12cd34.sts.eu-central-1.vpce.amazonaws.com": {&aws.Provider{},
			[]auth.Option{auth.WithSTSEndpoint("https://vpce-0abc123def4567890-ab12cd34.sts.eu-central-1.vpce.amazonaws.com")}},
	} {
		arn := "arn:aws:iam::" + account + ":role/abroad"
		if given := resolve(tc.opts); given.STSRegion != "" {
			partition, _ := awsname.PartitionOf(given.STSRegion)
			arn = "arn:" + partition.Name + ":iam::" + account + ":role/abroad"
		}
		w := newEnvironment(t, testenv.ServiceAccount("tenant-a", "abroad", aws.RoleARNAnnotation, arn))
		w.Cloud.AWS().SetRole(arn,
			cloudtest.Trust{Issuer: w.Issuer.URL(), Subjects: []string{"system:serviceaccount:tenant-a:abroad"}})
		_, err := auth.GetAccessToken(t.Context(), tc.provider, w.options("tenant-a", "abroad", tc.opts...)...)
		if err != nil {
			t.Errorf("%s: %v", want, err)
		} else if got := w.Cloud.Log()[0].Host; got != want {
			t.Errorf("asked %s, want %s", got, want)
		}
	}
}

func resolve(opts []auth.Option) *provider.Options {
	o := &auth.Options{}
	for _, opt := range opts {
		opt(o)
	}
	return &o.Options
}

// A role of one partition is unknown in the regions of the others, and STS
// would not say so.
func TestPartitionsDoNotMix(t *testing.T) {
	w := newEnvironment(t)
	for _, region := range []string{"cn-north-1", "us-gov-west-1", "eusc-de-east-1"} {
		_, err := w.get(t, "tenant-a", "app", auth.WithSTSRegion(region))
		testenv.CheckError(t, err, auth.ErrMisconfigured, "partition", region, role("tenant-a"))
	}
	testenv.ExpectNone(t, w.Cloud.Calls("", ""))
}

// Every way in which STS can fail has its reason and its remedy.
func TestErrorsOfSTS(t *testing.T) {
	for name, tc := range map[string]struct {
		fault  cloudtest.Fault
		reason provider.Reason
		want   string
	}{
		"no OIDC provider": {cloudtest.Fault{Status: 400, Code: "InvalidIdentityToken",
			Message: "No OpenIDConnect provider found in your account for https://x"}, auth.ErrDenied,
			"create the IAM OIDC provider"},
		"audience": {cloudtest.Fault{Status: 400, Code: "InvalidIdentityToken",
			Message: "Incorrect token audience"}, auth.ErrDenied, "client IDs of the IAM OIDC provider"},
		"keys": {cloudtest.Fault{Status: 400, Code: "InvalidIdentityToken",
			Message: "Couldn't retrieve verification key from your identity provider,  please reference AssumeRoleWithWebIdentity documentation for requirements"}, auth.ErrUnavailable, "discovery document"},
		"claim": {cloudtest.Fault{Status: 403, Code: "IDPRejectedClaim", Message: "no"}, auth.ErrDenied,
			"IDPRejectedClaim"},
		"issuer unreachable": {cloudtest.Fault{Status: 400, Code: "IDPCommunicationError", Message: "no"},
			auth.ErrUnavailable, "IDPCommunicationError"},
		"expired": {cloudtest.Fault{Status: 400, Code: "ExpiredTokenException", Message: "Token expired"},
			auth.ErrUnavailable, "clock"},
		"region": {cloudtest.Fault{Status: 403, Code: "RegionDisabledException",
			Message: "STS is not activated in this region"}, auth.ErrMisconfigured, "activate"},
		"validation": {cloudtest.Fault{Status: 400, Code: "ValidationError", Message: "bad"},
			auth.ErrMisconfigured, "bad"},
		"policy": {cloudtest.Fault{Status: 400, Code: "MalformedPolicyDocument", Message: "bad"},
			auth.ErrMisconfigured, "bad"},
		"throttled": {cloudtest.Fault{Status: 400, Code: "Throttling", Message: "Rate exceeded"},
			auth.ErrThrottled, "Rate exceeded"},
		"throttled with 429": {cloudtest.Fault{Status: 429, Code: "TooManyRequests", Message: "slow"}, auth.ErrThrottled,
			"slow"},
		"503": {cloudtest.Fault{Status: 503, Code: "ServiceUnavailable", Message: "later"},
			auth.ErrUnavailable, "HTTP 503"},
		"500": {cloudtest.Fault{Status: 500, Code: "InternalFailure", Message: "oops"}, auth.ErrUnavailable,
			"HTTP 500"},
		"unknown": {cloudtest.Fault{Status: 418, Code: "Teapot", Message: "short and stout"}, auth.ErrDenied,
			"Teapot"},
		"cut": {cloudtest.Fault{Cut: true}, auth.ErrUnavailable, "sts.eu-central-1.amazonaws.com"},
		"HTML": {cloudtest.Fault{Body: "<html>secret of the proxy</html>"}, auth.ErrUnavailable,
			"cannot be"},
		"JSON": {cloudtest.Fault{Body: `{"secret":"x"}`}, auth.ErrUnavailable, "cannot be"},
		"empty": {cloudtest.Fault{Rewrite: func([]byte) []byte {
			return nil
		}}, auth.ErrUnavailable, "cannot be"},
		"10 MB": {cloudtest.Fault{Body: strings.Repeat("<a>", 10<<20/3)}, auth.ErrUnavailable, "larger than"},
		"redirect": {cloudtest.Fault{Redirect: "https://sts.amazonaws.com.evil.example/"}, auth.ErrUnavailable,
			"redirect, which is not followed"},
		"no Expiration": {rewrite("Expiration", ""), auth.ErrUnavailable, "expiry is missing"},
		"Expiration is a word": {rewrite("Expiration", "<Expiration>soon</Expiration>"), auth.ErrUnavailable,
			"cannot be read"},
		"Expiration has passed": {rewrite("Expiration", "<Expiration>2020-01-01T00:00:00Z</Expiration>"), auth.ErrUnavailable,
			"it expired at"},
		"Expiration of 1970": {rewrite("Expiration", "<Expiration>1970-01-01T00:00:00Z</Expiration>"), auth.ErrUnavailable,
			"it expired at"},
		"Expiration far ahead": {rewrite("Expiration", "<Expiration>9999-01-01T00:00:00Z</Expiration>"), auth.ErrUnavailable,
			"later than any"},
		"no AccessKeyId": {rewrite("AccessKeyId", ""), auth.ErrUnavailable, "AccessKeyId is missing"},
		"empty SecretAccessKey": {rewrite("SecretAccessKey", "<SecretAccessKey></SecretAccessKey>"), auth.ErrUnavailable,
			"SecretAccessKey is missing"},
		"no SessionToken": {rewrite("SessionToken", ""), auth.ErrUnavailable, "SessionToken is missing"},
		"no Credentials":  {rewrite("Credentials", ""), auth.ErrUnavailable, "no credentials"},
		"token in the message": {cloudtest.Fault{Status: 403, Code: "AccessDenied", Message: "you sent \x1b[31m"},
			auth.ErrDenied, "you sent"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newEnvironment(t)
			w.Cloud.AddFault(tc.fault)
			token, err := w.get(t, "tenant-a", "app")
			testenv.CheckError(t, err, tc.reason, `aws: ServiceAccount "tenant-a/app": assume role with web identity`, tc.want)
			if token != nil || strings.Contains(err.Error(), "secret of the proxy") || strings.Contains(err.Error(), "\x1b") {
				t.Errorf("got %v, %v", token, err)
			}
		})
	}
}

func rewrite(element, replacement string) cloudtest.Fault {
	return cloudtest.Fault{Rewrite: func(body []byte) []byte {
		s := string(body)
		begin, end := strings.Index(s, "<"+element+">"), strings.Index(s, "</"+element+">")
		return []byte(s[:begin] + replacement + s[end+len(element)+3:])
	}}
}

// New keys of an issuer take a moment to reach STS.
func TestRetries(t *testing.T) {
	w := newEnvironment(t)
	w.Cloud.AddFault(cloudtest.Fault{Times: 1, Status: 400, Code: "IDPCommunicationError"})
	w.Cloud.AddFault(cloudtest.Fault{Times: 1, Status: 503, Code: "ServiceUnavailable"})
	if _, err := w.get(t, "tenant-a", "app"); err != nil || w.Cloud.Calls("sts", "") != 3 {
		t.Errorf("%d calls, %v", w.Cloud.Calls("sts", ""), err)
	}
	w.Cloud.AWS().RemoveRole(role("tenant-b"))
	if _, err := w.get(t, "tenant-b", "app"); err == nil || w.Cloud.Calls("sts", "") != 4 {
		t.Errorf("a refusal was asked for again: %d calls, %v", w.Cloud.Calls("sts", ""), err)
	}
}

type trap struct{ t *testing.T }

func (b trap) RoundTrip(r *http.Request) (*http.Response, error) {
	b.t.Errorf("http.DefaultTransport was used for %s", r.URL.Host)
	return nil, errors.New("trapped")
}

// When STS refuses, nothing of the controller's own takes its place.
func TestNothingFallsBack(t *testing.T) {
	w := newEnvironment(t)
	w.Cloud.AWS().RemoveRole(role("tenant-a"))
	id, secret := w.Cloud.AWS().AddUser(account, "controller")
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": id, "AWS_SECRET_ACCESS_KEY": secret,
		"AWS_SESSION_TOKEN": "",
		"AWS_ROLE_ARN":      role("tenant-b"), "AWS_WEB_IDENTITY_TOKEN_FILE": "/nonexistent", "AWS_PROFILE": "nobody",
		"AWS_ENDPOINT_URL":     "https://evil.example",
		"AWS_ENDPOINT_URL_STS": "https://evil.example", "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1:1/",
		"AWS_STS_REGIONAL_ENDPOINTS": "legacy"} {
		t.Setenv(name, value)
	}
	defaultTransport, defaultClient := http.DefaultTransport, http.DefaultClient
	http.DefaultTransport, http.DefaultClient = trap{t}, &http.Client{Transport: trap{t}}
	defer func() { http.DefaultTransport, http.DefaultClient = defaultTransport, defaultClient }()
	token, err := w.get(t, "tenant-a", "app")
	testenv.CheckError(t, err, auth.ErrDenied, "AccessDenied")
	if token != nil || w.Cloud.Calls("", "") != 1 || w.Cloud.Log()[0].Host != "sts.eu-central-1.amazonaws.com" {
		t.Errorf("got %v after %+v", token, w.Cloud.Log())
	}
	if _, err := w.get(t, "tenant-b", "app"); err != nil {
		t.Errorf("the environment disturbs a good ServiceAccount: %v", err)
	}
}

func TestConformance(t *testing.T) {
	w := newEnvironment(t, testenv.ServiceAccount("tenant-b", "thief", aws.RoleARNAnnotation, role("tenant-a")),
		testenv.ServiceAccount("tenant-a", "bad", aws.RoleARNAnnotation, "app")).clusters()
	h := w.harness()
	h.ForeignRepositories = []string{registryHost + ".evil.example/app", "docker.io/library/alpine"}
	h.Cluster = []auth.Option{auth.WithClusterResource(clusterARN)}
	h.ForeignGitURLs = []string{"https://git-codecommit.eu-central-1.amazonaws.com.evil.example/v1/repos/a",
		"https://github.com/org/repo"}
	h.Annotations = map[string]string{aws.TokenExpirationAnnotation: "1800"}
	h.Fields = map[string]any{"AllowedSTSHosts": nil, "STSAudiences": nil, "UseFIPSEndpoint": true,
		"UseDualStackEndpoint": true}
	authtest.RunConformance(t, h)
}

// harness is for ServiceAccounts of two tenants and a fault of the whole cloud.
func (w *environment) harness() authtest.Harness {
	return authtest.Harness{
		New:        func(*testing.T) auth.Provider { return aws.Impatient() },
		Options:    []auth.Option{auth.WithSTSRegion("eu-central-1"), auth.WithHTTPClient(w.Cloud.Client())},
		Client:     w.Client,
		Repository: registryHost + "/app",
		GitURL:     gitURL,
		Good:       client.ObjectKey{Namespace: "tenant-a", Name: "app"},
		Other:      client.ObjectKey{Namespace: "tenant-b", Name: "app"},
		Refused:    client.ObjectKey{Namespace: "tenant-b", Name: "thief"},
		Malformed:  client.ObjectKey{Namespace: "tenant-a", Name: "bad"},
		Break:      w.Break,
		Calls:      func() int { return w.Cloud.Calls("", "") },
		Secrets: func(t *testing.T, token auth.Token) []string {
			own, err := aws.FromToken(token)
			if err != nil {
				t.Fatal(err)
			}
			return []string{own.Credentials().SecretAccessKey, own.Credentials().SessionToken}
		},
	}
}

func TestCredentialsProviderInvalidate(t *testing.T) {
	w := newEnvironment(t)
	synctest.Test(t, func(t *testing.T) {
		n := 0
		sts := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			n++
			return fixedAnswer{http.StatusOK,
				fmt.Appendf(nil, `<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>`+
					`<AccessKeyId>ASIA%d</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken><Expiration>%s</Expiration>`+
					`</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`,
					n, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))}.RoundTrip(r)
		})}
		creds := aws.NewCredentialsProvider(w.options("tenant-a", "app", testenv.Cached(t, "tenant-a"),
			auth.WithHTTPClient(sts))...)
		testenv.CheckInvalidate(t, creds, func() (string, error) {
			c, err := creds.Retrieve(t.Context())
			return c.AccessKeyID, err
		})
	})
}
