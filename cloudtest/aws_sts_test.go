package cloudtest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	account  = "123456789012"
	roleARN  = "arn:aws:iam::123456789012:role/team/tenant-a"
	subject  = "system:serviceaccount:tenant-a:app"
	audience = "sts.amazonaws.com"
)

// environment trusts one ServiceAccount in the services that are tested.
type environment struct{ *testenv.Environment }

func newEnvironment(t *testing.T) environment {
	t.Helper()
	w := environment{testenv.New(t)}
	w.Cloud.AWS().AddOIDCProvider(account, w.Issuer.URL(), w.Issuer.HTTPClient(), audience)
	w.Cloud.AWS().SetRole(roleARN, cloudtest.Trust{Issuer: w.Issuer.URL(), Subjects: []string{subject}})
	return w
}

func (w environment) sts(creds aws.CredentialsProvider, change ...func(*sts.Options)) *sts.Client {
	return sts.New(sts.Options{Region: "eu-central-1", HTTPClient: w.Cloud.Client(), Credentials: creds,
		RetryMaxAttempts: 1}, change...)
}

func (w environment) token(t *testing.T, change ...func(claims map[string]any)) string {
	t.Helper()
	return w.Token(t, "tenant-a", "app", audience, change...)
}

func (w environment) exchange(ctx context.Context, token string,
	change ...func(*sts.AssumeRoleWithWebIdentityInput)) (*sts.AssumeRoleWithWebIdentityOutput, error) {
	in := &sts.AssumeRoleWithWebIdentityInput{RoleArn: aws.String(roleARN), RoleSessionName: aws.String("session"),
		WebIdentityToken: &token}
	for _, c := range change {
		c(in)
	}
	return w.sts(aws.AnonymousCredentials{}).AssumeRoleWithWebIdentity(ctx, in)
}

// An unmodified SDK client, at the production URL, gets credentials that work.
// A truncated request gets no answer: the connection ends.
func TestRequestThatBreaksOff(t *testing.T) {
	w := newEnvironment(t)
	for host, target := range map[string]string{"sts.eu-central-1.amazonaws.com": "",
		"api.ecr.eu-central-1.amazonaws.com": "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken"} {
		server, client := io.Pipe()
		_ = client.CloseWithError(io.ErrUnexpectedEOF) // never fails
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+host+"/", server)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Amz-Target", target)
		func() {
			defer func() {
				if p := recover(); p != http.ErrAbortHandler { //nolint:errorlint // it is compared by net/http too
					t.Errorf("%s: ended with %v", host, p)
				}
			}()
			w.Cloud.Handler().ServeHTTP(noAnswer{}, r)
		}()
	}
}

type noAnswer struct{}

func (noAnswer) Header() http.Header       { return http.Header{} }
func (noAnswer) WriteHeader(int)           { panic("an answer") }
func (noAnswer) Write([]byte) (int, error) { panic("an answer") }

func TestExchangeAndUse(t *testing.T) {
	w := newEnvironment(t)
	out, err := w.exchange(t.Context(), w.token(t))
	if err != nil {
		t.Fatal(err)
	}
	if got := aws.ToString(out.AssumedRoleUser.Arn); got != "arn:aws:sts::123456789012:assumed-role/tenant-a/session" {
		t.Errorf("assumed %s", got)
	}
	if aws.ToString(out.SubjectFromWebIdentityToken) != subject || aws.ToString(out.Audience) != audience ||
		aws.ToString(out.Provider) != "arn:aws:iam::123456789012:oidc-provider/issuer.example" {
		t.Errorf("got %+v", out)
	}
	c := out.Credentials
	creds := credentials.NewStaticCredentialsProvider(*c.AccessKeyId, *c.SecretAccessKey, *c.SessionToken)
	who, err := w.sts(creds).GetCallerIdentity(t.Context(), nil)
	if err != nil || aws.ToString(who.Arn) != aws.ToString(out.AssumedRoleUser.Arn) ||
		aws.ToString(who.Account) != account {
		t.Errorf("GetCallerIdentity: %+v, %v", who, err)
	}
	if id, ok := w.Cloud.AWS().Identity(*c.AccessKeyId); !ok || id.Subject != subject || id.RoleARN != roleARN {
		t.Errorf("Identity: %+v, %t", id, ok)
	}
	presigned, err := sts.NewPresignClient(w.sts(creds)).PresignGetCallerIdentity(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]int{presigned.URL: 200,
		strings.Replace(presigned.URL, "Action=Get", "Action=get", 1):     400,
		strings.Replace(presigned.URL, "X-Amz-Date=2", "X-Amz-Date=1", 1): 403} {
		if status, body, _ := send(t, w.Cloud, http.MethodGet, url, ""); status != want {
			t.Errorf("presigned: %d, want %d: %s", status, want, body)
		}
	}
	for _, call := range w.Cloud.Log() {
		for name, value := range call.Parameters {
			if strings.Contains(value, "eyJ") || strings.Contains(name, "Token") {
				t.Errorf("the log holds %s", name)
			}
		}
	}
}

func wantCode(t *testing.T, err error, status int, code, message string) {
	t.Helper()
	var api smithy.APIError
	var response *awshttp.ResponseError
	if !errors.As(err, &api) || !errors.As(err, &response) {
		t.Fatalf("got %v, want %s", err, code)
	}
	if api.ErrorCode() != code || response.HTTPStatusCode() != status || !strings.Contains(api.ErrorMessage(), message) ||
		response.ServiceRequestID() == "" {
		t.Errorf("got %d %s %q (request %q), want %d %s %q", response.HTTPStatusCode(), api.ErrorCode(), api.ErrorMessage(),
			response.ServiceRequestID(), status, code, message)
	}
}

// Every fault of a token gets the answer of the real STS.
func TestTokensThatAreRefused(t *testing.T) {
	set := func(name string, value any) func(map[string]any) { return func(c map[string]any) { c[name] = value } }
	for name, tc := range map[string]struct {
		claims  func(map[string]any)
		tamper  func(string) string
		status  int
		code    string
		message string
	}{
		"another subject": {set("sub", "system:serviceaccount:tenant-b:app"), nil, 403, "AccessDenied",
			"Not authorized to perform sts:AssumeRoleWithWebIdentity"},
		"a longer subject": {set("sub", subject+"-2"), nil, 403, "AccessDenied", ""},
		"another audience": {set("aud", []string{"vault"}), nil, 400, "InvalidIdentityToken", "Incorrect token audience"},
		"no audience": {func(c map[string]any) {
			delete(c, "aud")
		}, nil, 400, "InvalidIdentityToken", "Missing a required claim: aud"},
		"another issuer": {set("iss", "https://other.example"), nil, 400, "InvalidIdentityToken",
			"No OpenIDConnect provider found in your account for https://other.example"},
		"issuer with a slash": {set("iss", "https://issuer.example/"), nil, 400, "InvalidIdentityToken",
			"No OpenIDConnect provider found"},
		"expired": {set("exp", time.Now().Add(-time.Minute).Unix()), nil, 400, "ExpiredTokenException",
			"Token expired: current date/time "},
		"tampered": {nil, func(s string) string {
			return strings.Replace(s, s[len(s)-20:], strings.Repeat("A", 20), 1)
		}, 400, "InvalidIdentityToken", "could not be validated"},
		"not a JWT": {nil, func(string) string {
			return "opaque-access-token"
		}, 400, "InvalidIdentityToken", "not a valid JWT. (You may see this error if you sent an Access Token)"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			token := w.token(t, tc.claims)
			if tc.tamper != nil {
				token = tc.tamper(token)
			}
			_, err := w.exchange(t.Context(), token)
			wantCode(t, err, tc.status, tc.code, tc.message)
		})
	}
}

func TestKeys(t *testing.T) {
	w := newEnvironment(t)
	const cannot = "Couldn't retrieve verification key from your identity provider,  please"
	header := func(h map[string]any) string {
		token, err := w.Issuer.SignWithHeader(w.Issuer.Claims(app(), []string{audience}, time.Hour), h)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	_, err := w.exchange(t.Context(), header(map[string]any{"alg": "RS256"}))
	wantCode(t, err, 400, "InvalidIdentityToken", cannot)
	_, err = w.exchange(t.Context(), header(map[string]any{"alg": "none"}))
	wantCode(t, err, 400, "InvalidIdentityToken", "not a valid JWT")

	old := w.token(t)
	if err := w.Issuer.Rotate(true); err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{old, w.token(t)} {
		if _, err := w.exchange(t.Context(), token); err != nil {
			t.Errorf("after a rotation that keeps the old key: %v", err)
		}
	}
	unreachable := newEnvironment(t)
	unreachable.Cloud.AWS().AddOIDCProvider(account, unreachable.Issuer.URL(), w.Cloud.Client(), audience)
	_, err = unreachable.exchange(t.Context(), unreachable.token(t, nil))
	wantCode(t, err, 400, "InvalidIdentityToken", cannot)
}

func TestParameters(t *testing.T) {
	w := newEnvironment(t)
	for name, tc := range map[string]struct {
		change  func(*sts.AssumeRoleWithWebIdentityInput)
		message string
	}{
		"long session name": {func(in *sts.AssumeRoleWithWebIdentityInput) {
			in.RoleSessionName = aws.String(strings.Repeat("a", 65))
		}, "less than or equal to 64"},
		"short session name": {func(in *sts.AssumeRoleWithWebIdentityInput) {
			in.RoleSessionName = aws.String("a")
		}, "greater than or equal to 2"},
		"session name": {func(in *sts.AssumeRoleWithWebIdentityInput) {
			in.RoleSessionName = aws.String("a:b")
		}, "regular expression pattern"},
		"role": {func(in *sts.AssumeRoleWithWebIdentityInput) {
			in.RoleArn = aws.String("arn:aws:s3:::bucket-of-mine")
		}, "roleArn"},
		"too long": {func(in *sts.AssumeRoleWithWebIdentityInput) {
			in.DurationSeconds = aws.Int32(7200)
		}, "exceeds the MaxSessionDuration"},
		"too short": {func(in *sts.AssumeRoleWithWebIdentityInput) { in.DurationSeconds = aws.Int32(60) }, "900"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.exchange(t.Context(), w.token(t), tc.change)
			wantCode(t, err, 400, "ValidationError", tc.message)
		})
	}
}

func TestAssumeRole(t *testing.T) {
	w := newEnvironment(t)
	id, secret := w.Cloud.AWS().AddUser(account, "admin")
	const second = "arn:aws:iam::210987654321:role/second"
	w.Cloud.AWS().SetRole(second,
		cloudtest.Trust{Principals: []string{"arn:aws:iam::123456789012:root"}, ExternalID: "ext"})
	assume := func(c aws.CredentialsProvider, external string) (*sts.AssumeRoleOutput, error) {
		return w.sts(c).AssumeRole(t.Context(),
			&sts.AssumeRoleInput{RoleArn: aws.String(second), RoleSessionName: aws.String("s" + "2"), ExternalId: &external})
	}
	out, err := assume(credentials.NewStaticCredentialsProvider(id, secret, ""), "ext")
	if err != nil || aws.ToString(out.AssumedRoleUser.Arn) != "arn:aws:sts::210987654321:assumed-role/second/s2" {
		t.Errorf("got %+v, %v", out, err)
	}
	_, err = assume(credentials.NewStaticCredentialsProvider(id, secret, ""), "other")
	wantCode(t, err, 403, "AccessDenied",
		"User: arn:aws:iam::123456789012:user/admin is not authorized to perform: sts:AssumeRole on resource: "+second)
	_, err = assume(credentials.NewStaticCredentialsProvider(id, secret+"x", ""), "ext")
	wantCode(t, err, 403, "SignatureDoesNotMatch", "The request signature we calculated does not match")
	_, err = assume(credentials.NewStaticCredentialsProvider("AKIAUNKNOWN", secret, ""), "ext")
	wantCode(t, err, 403, "InvalidClientTokenId", "")

	first, err := w.exchange(t.Context(), w.token(t))
	if err != nil {
		t.Fatal(err)
	}
	c := first.Credentials
	w.Cloud.SetClock(func() time.Time { return time.Now().Add(2 * time.Hour) })
	_, err = assume(credentials.NewStaticCredentialsProvider(*c.AccessKeyId, *c.SecretAccessKey, *c.SessionToken), "ext")
	wantCode(t, err, 403, "ExpiredToken", "")
	w.Cloud.SetClock(func() time.Time { return time.Now().Add(time.Hour) })
	// The SDK corrects a clock that is wrong by signing again with the server's
	// time; with one attempt it cannot.
	_, err = assume(credentials.NewStaticCredentialsProvider(id, secret, ""), "ext")
	wantCode(t, err, 403, "SignatureDoesNotMatch", "Signature expired: ")
}

// The bytes of the answers are those of the service.
func TestWireFormat(t *testing.T) {
	w := newEnvironment(t)
	base :=
		"https://sts.eu-central-1.amazonaws.com/?Version=2011-06-15&Action=AssumeRoleWithWebIdentity&RoleSessionName=session&RoleArn=" + roleARN
	status, body, _ := send(t, w.Cloud, http.MethodGet, base+"&WebIdentityToken="+
		w.token(t, func(c map[string]any) { c["aud"] = "vault" }), "")
	id := body[strings.Index(body, "<RequestId>")+11 : strings.Index(body, "</RequestId>")]
	want := `<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
  <Error>
    <Type>Sender</Type>
    <Code>InvalidIdentityToken</Code>
    <Message>Incorrect token audience</Message>
  </Error>
  <RequestId>` + id + `</RequestId>
</ErrorResponse>
`
	if status != 400 || body != want {
		t.Errorf("got %d %s", status, body)
	}
	_, body, _ = send(t, w.Cloud, http.MethodGet, base+"&WebIdentityToken=opaque", "", "Accept", "application/json")
	if !strings.HasPrefix(body,
		`{"Error":{"Code":"InvalidIdentityToken","Message":"The ID Token provided is not a valid JWT.`) ||
		!strings.Contains(body, `","Type":"Sender"},"RequestId":"`) {
		t.Errorf("JSON: %s", body)
	}
}

func TestFaults(t *testing.T) {
	w := newEnvironment(t)
	token := w.token(t)
	for _, fault := range []cloudtest.Fault{{Hang: true}, {Latency: time.Hour}, {Slow: true}} {
		end := w.Cloud.AddFault(fault)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if _, err := w.exchange(ctx, token); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%+v: got %v, want the end of the context", fault, err)
		}
		cancel()
		end()
	}
	w.Cloud.AddFault(cloudtest.Fault{Service: "sts", Action: "AssumeRole", Status: 500})
	w.Cloud.AddFault(cloudtest.Fault{Times: 2, Status: 500, Code: "InternalFailure"})
	for want := range 3 {
		if _, err := w.exchange(t.Context(), token); (err == nil) != (want == 2) {
			t.Errorf("call %d: %v", want+1, err)
		}
	}
}

// The API server in memory answers TokenRequests as the real one does.
func TestTokenRequests(t *testing.T) {
	w := newEnvironment(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "pod"},
		Spec: corev1.PodSpec{ServiceAccountName: "other"}}
	c := w.Issuer.Client(app(), pod)
	var sa corev1.ServiceAccount
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(app()), &sa); err != nil || sa.UID == "" {
		t.Fatalf("%v, UID %q", err, sa.UID)
	}
	seconds := func(n int64) *int64 { return &n }
	request := func(change func(*authenticationv1.TokenRequest)) error {
		r := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}}}
		if change != nil {
			change(r)
		}
		if err := c.SubResource("token").Create(t.Context(), &sa, r); err != nil {
			return err
		}
		_, err := w.exchange(t.Context(), r.Status.Token)
		return err
	}
	if err := request(nil); err != nil {
		t.Errorf("a good request: %v", err)
	}
	for name, tc := range map[string]struct {
		change func(*authenticationv1.TokenRequest)
		is     func(error) bool
		text   string
	}{
		"a minute": {func(r *authenticationv1.TokenRequest) {
			r.Spec.ExpirationSeconds = seconds(60)
		}, apierrors.IsInvalid,
			`TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 60: may not specify a duration less than 10 minutes`},
		"another UID": {func(r *authenticationv1.TokenRequest) {
			r.UID = "x"
		}, apierrors.IsConflict,
			`Operation cannot be fulfilled on TokenRequest.authentication.k8s.io "app": the UID in the token request (x) does not match`},
		"foreign pod": {func(r *authenticationv1.TokenRequest) {
			r.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "pod"}
		}, apierrors.IsBadRequest,
			`cannot bind token for serviceaccount "app" to pod running with different serviceaccount name.`},
	} {
		if err := request(tc.change); !tc.is(err) || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.Issuer.Refuse(func(sa corev1.ServiceAccount, _ authenticationv1.TokenRequestSpec) error {
		return apierrors.NewForbidden(corev1.Resource("serviceaccounts"), sa.Name, errors.New("no rule"))
	})
	if err := request(nil); !apierrors.IsForbidden(err) || err.Error() != `serviceaccounts "app" is forbidden: no rule` {
		t.Errorf("refused: %v", err)
	}
	w.Issuer.Refuse(nil)
	if err := c.Delete(t.Context(), &sa); err != nil {
		t.Fatal(err)
	}
	if err := request(nil); !apierrors.IsNotFound(err) {
		t.Errorf("deleted: %v", err)
	}
	again := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app"}}
	if err := c.Create(t.Context(), again); err != nil || again.UID == "" || again.UID == sa.UID {
		t.Errorf("re-created with UID %q after %q, %v", again.UID, sa.UID, err)
	}
}
