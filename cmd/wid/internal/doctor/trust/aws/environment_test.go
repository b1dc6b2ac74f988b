package aws_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"go.uber.org/goleak"

	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor/trust/aws"
	"github.com/workloadid/workloadid/internal/annotation"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	account  = "123456789012"
	platform = "arn:aws:iam::" + account + ":user/platform"
	roleARN  = "arn:aws:iam::" + account + ":role/team/tenant-a"
	subject  = "system:serviceaccount:tenant-a:app"
	audience = "sts.amazonaws.com"
)

// environment is an account in which everything fits, until a test changes
// that.
type environment struct {
	*testing.T
	issuer  *cloudtest.Issuer
	cloud   *cloudtest.Cloud
	reader  *aws.Reader
	hidden  []string      // from reports
	timeout time.Duration // of the examination. Zero means a minute
}

func newEnvironment(t *testing.T) *environment {
	t.Helper()
	w := &environment{T: t, issuer: testenv.Issuer(t), cloud: testenv.Cloud(t)}
	w.reader = &aws.Reader{HTTPClient: w.cloud.Client()}
	w.login(account, "platform")
	w.provider(audience)
	w.role(cloudtest.Trust{Subjects: []string{subject}})
	return w
}

// login makes the reader use the access key of a new user.
func (w *environment) login(account, name string) {
	id, secret := w.cloud.AWS().AddUser(account, name)
	w.reader.Credentials = credentials.NewStaticCredentialsProvider(id, secret, "")
	w.hidden = append(w.hidden, secret)
}

func (w *environment) provider(clientIDs ...string) {
	w.cloud.AWS().AddOIDCProvider(account, w.issuer.URL(), w.issuer.HTTPClient(), clientIDs...)
}

func (w *environment) role(trust cloudtest.Trust) {
	trust.Issuer = w.issuer.URL()
	w.cloud.AWS().SetRole(roleARN, trust)
}

func (w *environment) run() *doctor.Report {
	w.Helper()
	report := runRule(w.Context(), queryOf(w.issuer.URL()), w.reader.Rule, w.timeout)
	verify(w.T, report, w.hidden...)
	return report
}

// queryOf asks about the role for a token of the ServiceAccount.
func queryOf(issuer string) doctor.TrustQuery {
	return doctor.TrustQuery{Identity: roleARN, Annotations: map[string]string{annotation.AWSRoleARN: roleARN},
		Claims: doctor.Claims{Issuer: issuer, Subject: subject, Audiences: []string{audience}, Namespace: "tenant-a",
			ServiceAccount: "app"}}
}

// printed is a trust policy with the given statements. ISS is the issuer's
// host, PROVIDER its OIDC provider, SUB the subject.
func printed(statements string) string {
	return strings.NewReplacer("ISS", "issuer.example", "PROVIDER",
		"arn:aws:iam::"+account+":oidc-provider/issuer.example", "SUB", subject).Replace(
		`{"Version":"2012-10-17","Statement":` + statements + "}")
}

// written is the rule of a trust policy that a test has written.
func written(policy string) func(context.Context, doctor.TrustQuery) doctor.Finding {
	return func(_ context.Context, q doctor.TrustQuery) doctor.Finding { return aws.CheckPolicy(&q, policy) }
}

// parsed runs the checks on a trust policy.
func parsed(t *testing.T, policy string, change ...func(*doctor.TrustQuery)) *doctor.Report {
	t.Helper()
	q := queryOf("https://issuer.example")
	for _, apply := range change {
		apply(&q)
	}
	report := runRule(t.Context(), q, written(policy), 0)
	verify(t, report)
	return report
}
