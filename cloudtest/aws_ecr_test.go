package cloudtest_test

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/ecrpublic"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	ststypes "github.com/aws/aws-sdk-go-v2/service/sts/types"

	"github.com/workloadid/workloadid/cloudtest"
)

// session returns credentials of the environment's role.
func (w environment) session(t *testing.T) credentials.StaticCredentialsProvider {
	t.Helper()
	out, err := w.exchange(t.Context(), w.token(t))
	if err != nil {
		t.Fatal(err)
	}
	return credentials.NewStaticCredentialsProvider(*out.Credentials.AccessKeyId, *out.Credentials.SecretAccessKey,
		*out.Credentials.SessionToken)
}

func (w environment) ecr(region string, creds aws.CredentialsProvider) *ecr.Client {
	return ecr.New(ecr.Options{Region: region, HTTPClient: w.Cloud.Client(), Credentials: creds, RetryMaxAttempts: 1})
}

func TestECR(t *testing.T) {
	w := newEnvironment(t)
	creds := w.session(t)
	out, err := w.ecr("eu-west-2", creds).GetAuthorizationToken(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	data := out.AuthorizationData[0]
	decoded, err := base64.StdEncoding.DecodeString(*data.AuthorizationToken)
	user, password, _ := strings.Cut(string(decoded), ":")
	host := account + ".dkr.ecr.eu-west-2.amazonaws.com"
	if err != nil || user != "AWS" || aws.ToString(data.ProxyEndpoint) != "https://"+host ||
		time.Until(*data.ExpiresAt) < 11*time.Hour {
		t.Errorf("user %q, %v, expires %v, %v", user, aws.ToString(data.ProxyEndpoint), data.ExpiresAt, err)
	}
	login := func(host, user, password string) (int, string, http.Header) {
		return send(t, w.Cloud, http.MethodGet, "https://"+host+"/v2/", "", "Authorization", basicAuth(user, password))
	}
	for _, tc := range []struct {
		host, user, password string
		want                 int
		body                 string
	}{
		{host, user, password, 200, "{}"},
		{host, user, password + "x", 401, "Not Authorized\n"},
		{host, "root", password, 401, "Not Authorized\n"},
		{host, "", "", 401, "Not Authorized\n"},
		{account + ".dkr.ecr.eu-west-1.amazonaws.com", user, password, 401, "Not Authorized\n"},
		{"public.ecr.aws", user, password, 401, "Not Authorized\n"},
	} {
		status, body, header := login(tc.host, tc.user, tc.password)
		if status != tc.want || body != tc.body || header.Get("Docker-Distribution-Api-Version") != "registry/2.0" {
			t.Errorf("%s as %q: %d %q", tc.host, tc.user, status, body)
		}
		if challenge := header.Get("Www-Authenticate"); status == 401 && challenge != `Basic realm="https://`+tc.host+
			`/",service="ecr.amazonaws.com"` {
			t.Errorf("the challenge is %s", challenge)
		}
	}
	w.Cloud.SetClock(func() time.Time { return time.Now().Add(13 * time.Hour) })
	if status, body, _ := login(host, user, password); status != 403 ||
		!strings.Contains(body, "Your authorization token has expired") {
		t.Errorf("after 13 hours: %d %q", status, body)
	}
}

// Every fault of a signature gets the answer of a JSON service.
func TestSignaturesThatAreRefused(t *testing.T) {
	w := newEnvironment(t)
	good, _ := w.session(t).Retrieve(t.Context())
	static := credentials.NewStaticCredentialsProvider
	for name, tc := range map[string]struct {
		creds   aws.CredentialsProvider
		clock   time.Duration
		code    string
		message string
	}{
		"no signature": {aws.AnonymousCredentials{}, 0, "MissingAuthenticationTokenException", ""},
		"unknown key": {static("AKIANOBODY", "x", ""), 0, "UnrecognizedClientException",
			"The security token included in the request is invalid."},
		"wrong secret": {static(good.AccessKeyID, "x", good.SessionToken), 0, "InvalidSignatureException",
			"does not match"},
		"no session token":  {static(good.AccessKeyID, good.SecretAccessKey, ""), 0, "UnrecognizedClientException", ""},
		"another's session": {static(good.AccessKeyID, good.SecretAccessKey, "x"), 0, "UnrecognizedClientException", ""},
		"expired": {static(good.AccessKeyID, good.SecretAccessKey, good.SessionToken), 2 * time.Hour,
			"ExpiredTokenException", "is expired"},
		"old": {static(good.AccessKeyID, good.SecretAccessKey, good.SessionToken), 20 * time.Minute,
			"InvalidSignatureException", "Signature expired"},
	} {
		w.Cloud.SetClock(func() time.Time { return time.Now().Add(tc.clock) })
		_, err := w.ecr("eu-west-2", tc.creds).GetAuthorizationToken(t.Context(), nil)
		t.Run(name, func(t *testing.T) { wantCode(t, err, 400, tc.code, tc.message) })
	}
}

// A signature is valid for one service and one region.
func TestSignatureScope(t *testing.T) {
	w := newEnvironment(t)
	creds := w.session(t)
	elsewhere := func(region, service string) error {
		url := "https://api.ecr." + region + ".amazonaws.com"
		_, err := w.ecr(service, creds).GetAuthorizationToken(t.Context(), nil, func(o *ecr.Options) {
			o.BaseEndpoint = &url
		})
		return err
	}
	if err := elsewhere("eu-west-2", "eu-west-2"); err != nil {
		t.Error(err)
	}
	wantCode(t, elsewhere("eu-west-2", "us-east-1"), 400, "InvalidSignatureException",
		"Credential should be scoped to a valid region, not 'us-east-1'.")
	endpoint := "https://api.ecr.eu-west-2.amazonaws.com"
	_,
		err := ecrpublic.New(ecrpublic.Options{Region: "eu-west-2", HTTPClient: w.Cloud.Client(), Credentials: creds,
		RetryMaxAttempts: 1, BaseEndpoint: &endpoint}).
		GetAuthorizationToken(t.Context(), nil)
	wantCode(t, err, 400, "UnknownOperationException", "")
	_, err = w.sts(creds, func(o *sts.Options) {
		o.BaseEndpoint = aws.String("https://sts.us-east-1.amazonaws.com")
	}).GetCallerIdentity(t.Context(), nil)
	wantCode(t, err, 403, "SignatureDoesNotMatch", "not 'eu-central-1'")
}

// The bearer token is that of aws-iam-authenticator: the SDK's presigned
// request with one more header.
func TestEKSTokens(t *testing.T) {
	w := newEnvironment(t)
	const arn = "arn:aws:eks:eu-central-1:" + account + ":cluster/prod"
	creds := w.session(t)
	presign := func(change func(*sts.Options), header string) string {
		client := sts.NewPresignClient(w.sts(creds, change), func(o *sts.PresignOptions) {
			o.Presigner = withHeader{v4.NewSigner(), header}
		})
		out, err := client.PresignGetCallerIdentity(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return out.URL
	}
	same := func(*sts.Options) {}
	good := presign(same, "prod")
	token := func(url string) string { return "k8s-aws-v1." + base64.RawURLEncoding.EncodeToString([]byte(url)) }
	w.Cloud.AWS().SetEKSAccessEntry(arn, roleARN, cloudtest.EKSAccessEntry{})
	if _, id, err := w.Cloud.AWS().VerifyEKSToken(arn, token(good)); err != nil || id.RoleARN != roleARN {
		t.Errorf("got %+v, %v", id, err)
	}
	replace := func(old, by string) string { return token(strings.Replace(good, old, by, 1)) }
	for name, tc := range map[string]struct{ token, want string }{
		"no prefix":         {strings.TrimPrefix(token(good), "k8s-aws-v1."), "prefix"},
		"padded":            {"k8s-aws-v1." + base64.URLEncoding.EncodeToString([]byte(good+"&x")) + "=", "illegal base64"},
		"http":              {replace("https://", "http://"), "scheme"},
		"another host":      {replace("sts.eu-central-1.amazonaws.com", "sts.evil.example"), "hostname"},
		"another partition": {replace("sts.eu-central-1.amazonaws.com", "sts.cn-north-1.amazonaws.com.cn"), "hostname"},
		"a path":            {replace("/?", "/x?"), "path"},
		"more parameters":   {token(good + "&Foo=bar"), "non-whitelisted"},
		"a parameter twice": {token(good + "&action=GetCallerIdentity"), "multiple values"},
		"another action":    {replace("GetCallerIdentity", "AssumeRole"), "action"},
		"no header":         {token(presign(same, "")), "did not sign"},
		"another cluster":   {token(presign(same, "other")), "SignatureDoesNotMatch"},
		"a tampered one":    {replace("X-Amz-Signature=", "X-Amz-Signature=0"), "SignatureDoesNotMatch"},
		"for long":          {replace("X-Amz-Expires=900", "X-Amz-Expires=901"), "X-Amz-Expires"},
		"too large":         {token(good + strings.Repeat("x", 4096)), "too large"},
	} {
		if _, _, err := w.Cloud.AWS().VerifyEKSToken(arn, tc.token); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %s", name, err, tc.want)
		}
	}
	w.Cloud.SetClock(func() time.Time { return time.Now().Add(16 * time.Minute) })
	if _, _, err := w.Cloud.AWS().VerifyEKSToken(arn, token(good)); err == nil ||
		!strings.Contains(err.Error(), "expired") {
		t.Errorf("after 16 minutes: %v", err)
	}
}

func TestAssumeRoleParameters(t *testing.T) {
	w := newEnvironment(t)
	const target = "arn:aws:iam::123456789012:role/target"
	w.Cloud.AWS().SetRole(target,
		cloudtest.Trust{Principals: []string{roleARN, target}, ExternalID: "ext-1", TagSession: true,
			SetSourceIdentity: true})
	creds := w.session(t)
	tag := func(key, value string) ststypes.Tag { return ststypes.Tag{Key: &key, Value: &value} }
	call := func(change func(*sts.AssumeRoleInput)) (*sts.AssumeRoleOutput, error) {
		in := &sts.AssumeRoleInput{RoleArn: aws.String(target), RoleSessionName: aws.String("session"),
			ExternalId: aws.String("ext-1")}
		change(in)
		return w.sts(creds).AssumeRole(t.Context(), in)
	}
	for name, tc := range map[string]struct {
		change  func(*sts.AssumeRoleInput)
		status  int
		code    string
		message string
	}{
		"external ID": {func(in *sts.AssumeRoleInput) {
			in.ExternalId = aws.String("ext-2")
		}, 403, "AccessDenied", "sts:AssumeRole on resource"},
		"short external ID": {func(in *sts.AssumeRoleInput) {
			in.ExternalId = aws.String("x")
		}, 400, "ValidationError", "'externalId'"},
		"external ID, pattern": {func(in *sts.AssumeRoleInput) {
			in.ExternalId = aws.String("a b")
		}, 400, "ValidationError", "regular expression"},
		"source identity": {func(in *sts.AssumeRoleInput) {
			in.SourceIdentity = aws.String("a/b")
		}, 400, "ValidationError", "'sourceIdentity'"},
		"policy": {func(in *sts.AssumeRoleInput) {
			in.Policy = aws.String("{")
		}, 400, "MalformedPolicyDocument", ""},
		"duration": {func(in *sts.AssumeRoleInput) {
			in.DurationSeconds = aws.Int32(899)
		}, 400, "ValidationError", "greater than or equal to 900"},
		"duration of a day": {func(in *sts.AssumeRoleInput) {
			in.DurationSeconds = aws.Int32(86400)
		}, 400, "ValidationError", "less than or equal to 43200"},
		"chained duration": {func(in *sts.AssumeRoleInput) {
			in.DurationSeconds = aws.Int32(7200)
		}, 400, "ValidationError", "exceeds the MaxSessionDuration"},
		"transitive, no tag": {func(in *sts.AssumeRoleInput) {
			in.TransitiveTagKeys = []string{"a"}
		}, 400, "ValidationError", "transitive"},
		"tags twice": {func(in *sts.AssumeRoleInput) {
			in.Tags = []ststypes.Tag{tag("a", "1"), tag("A", "2")}
		}, 400, "InvalidParameterValue", "Duplicate"},
		"tag key": {func(in *sts.AssumeRoleInput) {
			in.Tags = []ststypes.Tag{tag("a\nb", "1")}
		}, 400, "ValidationError", "regular expression"},
		"tag of AWS": {func(in *sts.AssumeRoleInput) {
			in.Tags = []ststypes.Tag{tag("aws:a", "1")}
		}, 400, "ValidationError", "aws:"},
	} {
		_, err := call(tc.change)
		t.Run(name, func(t *testing.T) { wantCode(t, err, tc.status, tc.code, tc.message) })
	}
	out, err := call(func(in *sts.AssumeRoleInput) {
		in.Tags, in.TransitiveTagKeys, in.SourceIdentity = []ststypes.Tag{tag("team", "a"), tag("env", "x")},
			[]string{"team"}, aws.String("who")
	})
	if err != nil || aws.ToString(out.SourceIdentity) != "who" {
		t.Fatalf("got %+v, %v, want the source identity who", out, err)
	}
	// The next role has the transitive tag and the source identity, and cannot
	// change the latter.
	c := out.Credentials
	creds = credentials.NewStaticCredentialsProvider(*c.AccessKeyId, *c.SecretAccessKey, *c.SessionToken)
	out, err = call(func(*sts.AssumeRoleInput) {})
	if err != nil {
		t.Fatal(err)
	}
	if id, _ := w.Cloud.AWS().Identity(*out.Credentials.AccessKeyId); id.SourceIdentity != "who" || len(id.Tags) != 1 ||
		id.Tags["team"] != "a" {
		t.Errorf("the second session is %+v", id)
	}
	_, err = call(func(in *sts.AssumeRoleInput) { in.SourceIdentity = aws.String("other") })
	wantCode(t, err, 403, "AccessDenied", "sts:SetSourceIdentity")
}
