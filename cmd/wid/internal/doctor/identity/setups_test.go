package identity_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	docs "github.com/workloadid/workloadid/internal/testing/document"
)

// setup is one that a new user meets.
type setup struct {
	name  string
	spoil func(w *environment)
	exit  int
	want  string
}

func TestSetups(t *testing.T) {
	for _, s := range setups() {
		t.Run(s.name, func(t *testing.T) {
			w := newEnvironment(t, "aws") // its servers live outside of the bubble
			w.config.ClusterName, w.config.Examination.Cluster = "prod", "cluster prod (https://10.0.0.1:6443)"
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

// inMemory replaces all networks, so that only the clock of the test's bubble
// passes.
func (w *environment) inMemory() {
	if w.config.IssuerClient == nil {
		w.config.IssuerClient = &http.Client{Transport: served{w.serve, ""}}
	}
	w.config.RESTConfig = &rest.Config{Host: "https://10.0.0.1:6443", Transport: served{w.issuer, ""}}
	w.config.Options = append(w.config.Options,
		auth.WithHTTPClient(&http.Client{Transport: served{w.cloud.Handler(), w.hangs}}))
}

// served answers requests without a network, with the time of the bubble.
type served struct {
	http.Handler
	hangs string // the host that gives no answer
}

func (s served) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host == s.hangs {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	in, answer := r.Clone(r.Context()), httptest.NewRecorder()
	in.Host = r.URL.Host
	if in.Body == nil {
		in.Body = http.NoBody
	}
	s.ServeHTTP(answer, in)
	response := answer.Result()
	response.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	response.Request = r
	return response, nil
}

func setups() []setup {
	return []setup{
		{"healthy", func(*environment) {}, 0, `
✓ tenant-a/app → aws, cluster prod (https://10.0.0.1:6443)
  Got credentials of role tenant-a until 01:00 UTC.
`},
		{"role of another tenant", func(w *environment) {
			const other = "arn:aws:iam::" + account + ":role/tenant-b"
			w.account.Annotations[aws.RoleARNAnnotation] = other
			w.cloud.AWS().SetRole(other,
				cloudtest.Trust{Issuer: w.issuer.URL(), Subjects: []string{"system:serviceaccount:tenant-b:app"}})
			w.readsAWS(&http.Client{Transport: served{w.cloud.Handler(), ""}})
		}, 1, `
✗ tenant-a/app → aws, cluster prod (https://10.0.0.1:6443)
  The trust policy of role tenant-b does not admit this ServiceAccount.
  [trust-rule, TrustPolicyRefusesSubject]
    token   system:serviceaccount:tenant-a:app
    policy  system:serviceaccount:tenant-b:app
  Fix   If the role is wrong:
          kubectl annotate sa -n tenant-a app --overwrite \
            eks.amazonaws.com/role-arn=arn:aws:iam::123456789012:role/NAME
  Or    If tenant-a is meant to have it, see: wid doctor … --show-policy
  Also  ✗ exchange (--verbose)
`},
		{"wrong cluster", func(w *environment) {
			w.config.ClusterName, w.config.Examination.Cluster = "staging", "cluster staging (https://10.0.0.1:6443)"
			w.cloud.AWS().RemoveOIDCProvider(account, w.issuer.URL())
		}, 1, `
✗ tenant-a/app → aws, cluster staging (https://10.0.0.1:6443)
  AWS STS: the account has no OIDC provider for the token's issuer.
  [exchange, IssuerNotTrusted]
  Cause - it was never created
        - it was created in another account than the role's
        - its URL differs from the issuer: the cluster was rebuilt, or a slash
        - the cluster still has its default issuer, which no cloud can reach
  Fix   Is staging the context that you meant?
          kubectl config get-contexts
  Or    If AWS is meant to trust it, see: wid doctor … --show-policy
`},
		{"no right to create tokens", func(w *environment) { w.user.mayNot = []string{"serviceaccounts/token"} }, 1, `
✗ tenant-a/app → aws, cluster prod (https://10.0.0.1:6443)
  You may not create tokens of tenant-a/app. [token-request, RightMissing]
  Fix   As an administrator: grant the rights to the identity that creates its
        tokens:
          kubectl --kubeconfig ADMIN_KUBECONFIG create role wid-token -n \
            tenant-a --verb=get,create \
            --resource=serviceaccounts,serviceaccounts/token \
            --resource-name=app
          kubectl --kubeconfig ADMIN_KUBECONFIG create rolebinding wid-token \
            -n tenant-a --role=wid-token --serviceaccount=system:controller
`},
		{"STS hangs", func(w *environment) { w.hangs = "sts.eu-central-1.amazonaws.com" }, 3, `
? tenant-a/app → aws, cluster prod (https://10.0.0.1:6443)
  AWS STS (sts.eu-central-1.amazonaws.com) has not answered in time.
  [exchange, ServiceUnreachable]
  Fix   Try again. If it lasts, check HTTPS_PROXY, DNS and firewall of this
        machine, and the status page of the service.
`},
	}
}

// The report in docs/doctor.md is that of a set-up.
func TestDocumentedReport(t *testing.T) {
	if got, want := docs.Read(t, "docs/doctor.md").Blocks("text")[0].Text, setups()[1].want[1:]; got != want {
		t.Errorf("docs/doctor.md has the report\n%s instead of\n%s", got, want)
	}
}
