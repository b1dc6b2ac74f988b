package aws_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/provider"
)

// fixedAnswer is an STS that answers everything alike.
type fixedAnswer struct {
	status int
	body   []byte
}

func (f fixedAnswer) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: f.status, Header: http.Header{"Content-Type": {"text/xml"}}, Request: r,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: io.NopCloser(bytes.NewReader(f.body)),
		ContentLength: int64(len(f.body))}, nil
}

// Whatever an STS answers, there is either a whole credential or an error, and
// never the token that was sent.
func FuzzSTSResponse(f *testing.F) {
	const good = `<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>ASIA</AccessKeyId>` +
		`<SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials>` +
		`</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`
	f.Add(true, []byte(good))
	f.Add(true, []byte(strings.Replace(good, "2099", time.Now().Add(time.Hour).UTC().Format("2006"), 1)))
	f.Add(false, []byte(`<ErrorResponse><Error><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>`))
	f.Add(true, []byte(`{"json":true}`))
	f.Add(true, []byte("<html>"))
	const canary = "eyJhbGciOiJub25lIn0.e30.canary-signature"
	sa := corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app",
		Annotations: map[string]string{aws.RoleARNAnnotation: role("tenant-a")}}}
	f.Fuzz(func(t *testing.T, ok bool, body []byte) {
		answer := fixedAnswer{http.StatusOK, body}
		if !ok {
			answer.status = http.StatusForbidden
		}
		opts := &provider.Options{STSRegion: "eu-central-1", HTTPClient: &http.Client{Transport: answer},
			Identity: role("tenant-a")}
		got, err := (&aws.Provider{}).NewTokenForServiceAccount(t.Context(), canary, &sa, opts)
		if (err == nil) == (got == nil) {
			t.Fatalf("got %v with error %v", got, err)
		}
		if err != nil {
			return
		}
		token, err := aws.FromToken(got)
		if err != nil {
			t.Fatal(err)
		}
		if c := token.Credentials(); c.AccessKeyID == "" || c.SecretAccessKey == "" || c.SessionToken == "" || !c.CanExpire ||
			token.GetDuration() <= 0 {
			t.Errorf("incomplete: %v", token)
		}
	})
}
