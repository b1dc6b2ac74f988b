package aws_test

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/provider"
)

// BenchmarkLargeRefusal is a tenant's STS that refuses with a long text.
func BenchmarkLargeRefusal(b *testing.B) {
	body := []byte(`<ErrorResponse><Error>` + strings.Repeat("<a/>", 1<<18) +
		`<Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>`)
	sa := corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app",
		Annotations: map[string]string{aws.RoleARNAnnotation: role("tenant-a")}}}
	p := &aws.Provider{}
	opts := &provider.Options{STSRegion: "eu-central-1", Identity: role("tenant-a"),
		HTTPClient: &http.Client{Transport: fixedAnswer{http.StatusForbidden, body}}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.NewTokenForServiceAccount(b.Context(), "token", &sa, opts); err == nil {
			b.Fatal("no error")
		}
	}
}

// The cache keeps an error for minutes, and a token for an hour. Neither is to
// hold what a hostile service adds to its answer.
func TestLongAnswersAreNotKept(t *testing.T) {
	const most = 8 << 10
	long := strings.Repeat("a", 60<<10)
	credentials :=
		`<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>ASIA</AccessKeyId>` +
			`<SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken><Expiration>` +
			time.Now().Add(time.Hour).UTC().Format(time.RFC3339) +
			`</Expiration></Credentials><AssumedRoleUser><Arn>%s</Arn></AssumedRoleUser></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`
	sa := corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app",
		Annotations: map[string]string{aws.RoleARNAnnotation: role("tenant-a")}}}
	for name, tc := range map[string]struct {
		status       int
		body, header string
	}{
		"code": {403, `<ErrorResponse><Error><Code>` + long + `</Code></Error></ErrorResponse>`, ""},
		"message": {403, `<ErrorResponse><Error><Code>AccessDenied</Code><Message>` + long +
			`</Message></Error></ErrorResponse>`, ""},
		"blanks": {403, `<ErrorResponse><Error><Code>AccessDenied</Code><Message>no` + strings.Repeat(" ", 60<<10) +
			`</Message></Error></ErrorResponse>`, ""},
		"request ID": {403, `<ErrorResponse><Error><Code>AccessDenied</Code></Error><RequestId>` + long +
			`</RequestId></ErrorResponse>`, ""},
		"header":         {403, `<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>`, long},
		"malformed":      {403, `<ErrorResponse><Error></` + long + `>`, ""},
		"malformed time": {200, fmt.Sprintf(strings.Replace(credentials, "Expiration>2", "Expiration>"+long+"2", 1), ""), ""},
		"session ARN":    {200, fmt.Sprintf(credentials, "arn:aws:sts::123456789012:assumed-role/"+long+"/tenant-a.app"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				resp, err := fixedAnswer{tc.status, []byte(tc.body)}.RoundTrip(r)
				resp.Header.Set("X-More", tc.header)
				return resp, err
			})}
			kept := make([]any, 64)
			p, opts := &aws.Provider{},
				&provider.Options{STSRegion: "eu-central-1", Identity: role("tenant-a"), HTTPClient: client}
			before := liveBytes()
			for i := range kept {
				token, err := p.NewTokenForServiceAccount(t.Context(), "token", &sa, opts)
				if (err == nil) != (name == "session ARN") {
					t.Fatal(err)
				}
				kept[i] = [2]any{token, err}
			}
			if n := (liveBytes() - before) / int64(len(kept)); n > most {
				t.Errorf("%d bytes are kept of each answer", n)
			}
			runtime.KeepAlive(kept)
		})
	}
}

func liveBytes() int64 {
	runtime.GC()
	runtime.GC() // frees what sync.Pools hold
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc) //nolint:gosec // fits
}
