package identity_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/doctor"
)

// setup is one of the ten set-ups that a new user meets.
type setup struct {
	name  string
	spoil func(w *world)
	exit  int
	want  string
}

func TestTenSetups(t *testing.T) {
	for _, s := range setups() {
		t.Run(s.name, func(t *testing.T) {
			w := newWorld(t, "aws") // its servers live outside of the bubble
			w.config.ClusterName = "prod"
			s.spoil(w)
			w.inMemory()
			synctest.Test(t, func(t *testing.T) {
				w.t = t
				report := w.run()
				readable(t, report)
				text := report.Text(doctor.TextOptions{PolicyHint: "wid doctor … --show-policy"})
				if report.ExitCode() != s.exit || text != strings.TrimPrefix(s.want, "\n") {
					t.Errorf("exit code %d, %d lines:\n%s", report.ExitCode(), strings.Count(text, "\n"), text)
				}
			})
		})
	}
}

// inMemory replaces all networks, so that only the clock of the test's bubble passes.
func (w *world) inMemory() {
	if w.config.IssuerClient == nil {
		w.config.IssuerClient = &http.Client{Transport: served{w.serve}}
	}
	w.config.RESTConfig = &rest.Config{Host: "https://10.0.0.1:6443", Transport: served{w.issuer}}
	w.config.Options = append(w.config.Options, auth.WithHTTPClient(&http.Client{Transport: served{w.cloud.Handler()}}))
}

// served answers requests without a network, with the time of the bubble.
type served struct{ http.Handler }

func (s served) RoundTrip(r *http.Request) (*http.Response, error) {
	in, answer := r.Clone(r.Context()), httptest.NewRecorder()
	in.Host = r.URL.Host
	if in.Body == nil {
		in.Body = http.NoBody
	}
	s.ServeHTTP(answer, in)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	response := answer.Result()
	response.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	response.Request = r
	return response, nil
}

// readTrust is what a reader of the cloud's trust has found.
type readTrust struct{ anchor, rule doctor.Finding }

func (r readTrust) Anchor(context.Context, doctor.TrustQuery) doctor.Finding { return r.anchor }
func (r readTrust) Rule(context.Context, doctor.TrustQuery) doctor.Finding   { return r.rule }

func setups() []setup {
	return []setup{
		{"1 healthy", func(*world) {}, 0, `
`},
		{"2 missing annotation", annotate(aws.RoleARNAnnotation, ""), 1, `
`},
		{"3 audience typo", func(w *world) {
			w.account.Annotations[aws.AudienceAnnotation] = "sts.amazonaws.co"
			w.allowAudience()
		}, 1, `
`},
		{"4 role of another tenant", func(w *world) {
			const other = "arn:aws:iam::" + account + ":role/tenant-b"
			w.account.Annotations[aws.RoleARNAnnotation] = other
			w.cloud.AWS().SetRole(other, authtest.Trust{Issuer: w.issuer.URL(), Subjects: []string{"system:serviceaccount:tenant-b:app"}})
			w.config.Trust = readTrust{doctor.Passed("The OIDC provider exists."), doctor.Failed("A1", doctor.Do("If the role is wrong:",
				"kubectl annotate sa -n tenant-a app --overwrite eks.amazonaws.com/role-arn=arn:aws:iam::123456789012:role/NAME").
				OrTrust("If tenant-a is meant to have it", "aws iam update-assume-role-policy"), "The trust policy of role tenant-b does not admit this ServiceAccount.").
				Compare("token", subject, "policy", "system:serviceaccount:tenant-b:app")}
		}, 1, `
`},
		{"5 wrong cluster", func(w *world) {
			w.config.ClusterName = "staging"
			w.cloud.AWS().RemoveOIDCProvider(account, w.issuer.URL())
		}, 1, `
`},
		{"6 no right to create tokens", func(w *world) { w.user.MayNot = []string{"serviceaccounts/token"} }, 1, `
`},
		{"7 STS hangs", func(w *world) { w.cloud.AddFault(authtest.Fault{Service: "sts", Hang: true}) }, 3, `
`},
		{"8 role does not exist", func(w *world) {
			w.cloud.AWS().RemoveRole(roleARN)
			w.config.Trust = readTrust{doctor.Passed("The OIDC provider exists."), doctor.Failed("A1", doctor.Do("Correct the annotation:",
				"kubectl annotate sa -n tenant-a app --overwrite eks.amazonaws.com/role-arn=arn:aws:iam::123456789012:role/NAME"), "Role tenant-a does not exist in account 123456789012.")}
		}, 1, `
`},
		{"9 missing namespace", func(w *world) { w.config.ServiceAccount = client.ObjectKey{Namespace: "tenant-b", Name: "app"} }, 1, `
`},
		{"10 clock 2 hours off", func(w *world) { w.config.Now = func() time.Time { return time.Now().Add(2 * time.Hour) } }, 3, `
`},
	}
}

var _ = []any{errors.New, corev1.Pod{}, metav1.Now}
