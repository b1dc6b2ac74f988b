package aws_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

const minio = "minio.example:9000"

// newService is an environment with an S3-compatible service whose roles have
// no account.
func newService(t *testing.T, annotations ...string) *environment {
	t.Helper()
	w := newEnvironment(t, testenv.ServiceAccount("tenant-a", "bucket", annotations...))
	w.Cloud.AWS().AddSTSHost("minio.example")
	for _, owner := range []string{"", "team_a"} {
		w.Cloud.AWS().AddOIDCProvider(owner, w.Issuer.URL(), w.Issuer.HTTPClient(), "https://"+minio)
	}
	// for own identity
	w.Cloud.AWS().AddOIDCProvider(account, w.Issuer.URL(), w.Issuer.HTTPClient(), "https://"+minio, aws.DefaultAudience)
	return w
}

func (w *environment) setServiceRole(arn string) {
	w.Cloud.AWS().SetRole(arn,
		cloudtest.Trust{Issuer: w.Issuer.URL(), Subjects: []string{"system:serviceaccount:tenant-a:bucket"}})
}

func (w *environment) getOfService(t *testing.T, provider *aws.Provider, endpoint string,
	more ...auth.Option) (*aws.Token, error) {
	t.Helper()
	return get(t, provider, w.options("tenant-a", "bucket", append(more, auth.WithSTSEndpoint(endpoint))...)...)
}

func TestRolesOfACompatibleService(t *testing.T) {
	for name, arn := range map[string]string{
		"MinIO":             "arn:minio:iam:::role/app",
		"MinIO, region":     "arn:minio:iam:eu-central-1::role/nOybJqMNzNmroqEKq5D0EUsRZw0",
		"Ceph":              "arn:aws:iam:::role/S3Access",
		"Ceph, path":        "arn:aws:iam:::role/team/S3Access",
		"Ceph, tenant":      "arn:aws:iam::team_a:role/S3Access",
		"as AWS writes one": role("app"),
	} {
		t.Run(name, func(t *testing.T) {
			w := newService(t, aws.RoleARNAnnotation, arn)
			w.setServiceRole(arn)
			for _, endpoint := range []string{"https://" + minio, "https://" + minio + "/"} {
				token, err := w.getOfService(t, &aws.Provider{AllowedSTSHosts: []string{minio}}, endpoint)
				if err != nil {
					t.Fatal(err)
				}
				if id := w.identity(t, token); id.RoleARN != arn || token.SessionName() != "tenant-a.bucket" ||
					token.AccountID() != "" || token.AssumedRoleARN() != "" {
					t.Errorf("got %+v, account %q, role %q", id, token.AccountID(), token.AssumedRoleARN())
				}
			}
		})
	}
}

// Names that are not AWS's go nowhere but to a host that the controller has
// allowed, and which is not one of AWS.
func TestRolesOfACompatibleServiceElsewhere(t *testing.T) {
	const arn, ofAWS = "arn:minio:iam:::role/app", "sts.eu-central-1.amazonaws.com"
	allowed := &aws.Provider{AllowedSTSHosts: []string{minio, ofAWS, ofAWS + ":443"}}
	w := newService(t, aws.RoleARNAnnotation, arn)
	w.setServiceRole(arn)
	for name, tc := range map[string]struct {
		provider *aws.Provider
		endpoint string
		want     string
	}{
		"no endpoint":            {allowed, "", "AWS has no partition"},
		"an endpoint of AWS":     {allowed, "https://" + ofAWS, "AWS has no partition"},
		"its port":               {allowed, "https://" + ofAWS + ":443/", "AWS has no partition"},
		"a host not allowed":     {&aws.Provider{}, "https://" + minio, "is refused"},
		"another port":           {allowed, "https://minio.example", "is refused"},
		"a path":                 {allowed, "https://" + minio + "/x", "is refused"},
		"a user":                 {allowed, "https://u@" + minio, "is refused"},
		"without TLS":            {allowed, "http://" + minio, "is refused"},
		"a host that ends in it": {allowed, "https://evil." + minio, "is refused"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.getOfService(t, tc.provider, tc.endpoint)
			testenv.CheckError(t, err, auth.ErrMisconfigured, tc.want)
		})
	}
	testenv.ExpectNone(t, w.Requests())
}

// An object cannot have the controller's own web identity token sent to another
// service. The controller itself can.
func TestOwnIdentityIsNotSentToACompatibleServiceForObjects(t *testing.T) {
	clearEnvironment(t)
	w := newService(t)
	w.setWebIdentity(t)
	get := func(more ...auth.Option) error {
		opts := []auth.Option{auth.WithSTSRegion("eu-central-1"), auth.WithSTSEndpoint("https://" + minio),
			auth.WithHTTPClient(w.Cloud.Client())}
		_, err := auth.GetAccessToken(t.Context(), &aws.Provider{AllowedSTSHosts: []string{minio}}, append(opts, more...)...)
		return err
	}
	testenv.CheckError(t, get(testenv.Owner("tenant-b")), auth.ErrDenied, "own identity", `"https://`+minio+`"`,
		"name a ServiceAccount")
	testenv.ExpectNone(t, w.Cloud.Calls("", ""))
	if err := get(); err != nil || !strings.HasPrefix(w.Cloud.Log()[0].Host, "minio.example") {
		t.Errorf("the controller for itself: %v, %+v", err, w.Cloud.Log())
	}
}

func TestRolesOfACompatibleServiceThatAreMalformed(t *testing.T) {
	for _, arn := range []string{"", "app", "arn::iam:::role/app", "arn:mi nio:iam:::role/app", "arn:minio:sts:::role/app",
		"arn:minio:iam:::user/app",
		"arn:minio:iam:::role/", "arn:minio:iam:::role/a\nb", "arn:minio:iam:a/b::role/app", "arn:minio:iam::a/b:role/app",
		"arn:minio:iam:::role/" + strings.Repeat("a", 65)} {
		w := newService(t, aws.RoleARNAnnotation, arn)
		_, err := w.getOfService(t, &aws.Provider{AllowedSTSHosts: []string{minio}}, "https://"+minio)
		testenv.CheckError(t, err, auth.ErrMisconfigured, "not the ARN of a role")
		if n := w.Cloud.Calls("", ""); n != 0 {
			t.Errorf("%q: %d requests were made", arn, n)
		}
	}
}

// Without DurationSeconds a session of MinIO lives as long as the
// ServiceAccount's token, which may be days.
func TestLongSessionOfACompatibleService(t *testing.T) {
	const arn = "arn:minio:iam:::role/app"
	w := newService(t, aws.RoleARNAnnotation, arn, aws.TokenExpirationAnnotation, "259200")
	w.setServiceRole(arn)
	token, err := w.getOfService(t, &aws.Provider{AllowedSTSHosts: []string{minio}}, "https://"+minio)
	if err != nil || token.GetDuration() < 71*time.Hour {
		t.Errorf("got %v, %v", token, err)
	}
}

func TestChainAtACompatibleService(t *testing.T) {
	const arn, next = "arn:aws:iam:::role/S3Access", "arn:aws:iam:::role/Reader"
	w := newService(t, aws.RoleARNAnnotation, arn)
	w.setServiceRole(arn)
	w.Cloud.AWS().SetRole(next, cloudtest.Trust{Principals: []string{arn}})
	further := aws.WithAssumeRole(aws.AssumeRole{RoleARN: next})
	provider := &aws.Provider{AllowedSTSHosts: []string{minio}}
	token, err := w.getOfService(t, provider, "https://"+minio, further)
	if err != nil || token.AssumedRoleARN() != "arn:aws:sts:::assumed-role/Reader/tenant-a.bucket" {
		t.Errorf("got %v of %q, %v", token, token.AssumedRoleARN(), err)
	}
	_, err = w.get(t, "tenant-a", "app", further)
	testenv.CheckError(t, err, auth.ErrMisconfigured, "12 digits", next)
}

// A service could use a token with the audience of AWS at AWS.
func TestAudienceIsTheServices(t *testing.T) {
	const vpce = "vpce-0123456789abcdef0-abcdefgh.sts.eu-central-1.vpce.amazonaws.com"
	p := &aws.Provider{AllowedSTSHosts: []string{minio, "ceph.example", "sts.amazonaws.com",
		"sts.eu-central-1.amazonaws.com:8443", vpce},
		STSAudiences: map[string]string{"ceph.example": "ceph", "sts.amazonaws.com": "other"}}
	sa := testenv.ServiceAccount("tenant-a", "bucket")
	for endpoint, want := range map[string]string{
		"":                          aws.DefaultAudience,
		"https://" + minio:          "https://" + minio,
		"https://" + minio + "/":    "https://" + minio,
		"https://ceph.example":      "ceph",
		"https://sts.amazonaws.com": aws.DefaultAudience,
		"https://" + vpce:           aws.DefaultAudience,
		"https://sts.eu-central-1.amazonaws.com:8443": aws.DefaultAudience,
	} {
		opts := &provider.Options{STSEndpoint: endpoint, STSRegion: "eu-central-1"}
		if err := p.ValidateOptions(opts); err != nil {
			t.Errorf("%q: %v", endpoint, err)
		}
		if got, err := p.GetAudiences(t.Context(), sa, opts); err != nil || !slices.Equal(got, []string{want}) {
			t.Errorf("%q: got %q, %v", endpoint, got, err)
		}
	}
	forAWS := testenv.ServiceAccount("tenant-a", "bucket", aws.AudienceAnnotation, aws.DefaultAudience)
	_, err := p.GetAudiences(t.Context(), forAWS, &provider.Options{STSEndpoint: "https://" + minio})
	testenv.CheckError(t, err, auth.ErrDenied)
}

func TestRefusalOfACompatibleServiceNamesTheClientID(t *testing.T) {
	w := newService(t, aws.RoleARNAnnotation, "arn:minio:iam:::role/app")
	_, err := w.getOfService(t, &aws.Provider{AllowedSTSHosts: []string{minio}}, "https://"+minio)
	testenv.CheckError(t, err, auth.ErrDenied, `client ID "https://`+minio+`"`)
}
