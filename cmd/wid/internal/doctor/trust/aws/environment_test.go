package aws_test

import (
	"context"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"go.uber.org/goleak"

	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor/trust/aws"
	"github.com/workloadid/workloadid/internal/annotation"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	account  = "123456789012"
	platform = "arn:aws:iam::" + account + ":user/platform"
	roleARN  = "arn:aws:iam::" + account + ":role/team/tenant-a"
	subject  = "system:serviceaccount:tenant-a:app"
	audience = "sts.amazonaws.com"
)

// environment is an account in which everything fits, until a test changes that.
type environment struct {
	*base
	reader *aws.Reader
}

func newEnvironment(t *testing.T) *environment {
	t.Helper()
	w := &environment{newBase(t, audience, roleARN, map[string]string{annotation.AWSRoleARN: roleARN}), nil}
	w.reader = &aws.Reader{HTTPClient: w.Cloud.Client()}
	w.login(account, "platform")
	w.provider(audience)
	w.role(authtest.Trust{Subjects: []string{subject}})
	return w
}

// login makes the reader use the access key of a new user.
func (w *environment) login(account, name string) {
	id, secret := w.Cloud.AWS().AddUser(account, name)
	w.reader.Credentials = credentials.NewStaticCredentialsProvider(id, secret, "")
	w.Hidden = append(w.Hidden, secret)
}

func (w *environment) provider(clientIDs ...string) {
	w.Cloud.AWS().AddOIDCProvider(account, w.Issuer.URL(), w.Issuer.HTTPClient(), clientIDs...)
}

func (w *environment) role(trust authtest.Trust) {
	trust.Issuer = w.Issuer.URL()
	w.Cloud.AWS().SetRole(roleARN, trust)
}

func (w *environment) run() *doctor.Report {
	w.Helper()
	return w.examine(w.reader)
}

// printed is a trust policy with the given statements. ISS is the issuer's host, PROVIDER its OIDC provider, SUB the subject.
func printed(statements string) string {
	return strings.NewReplacer("ISS", "issuer.example", "PROVIDER", "arn:aws:iam::"+account+":oidc-provider/issuer.example", "SUB", subject).Replace(
		`{"Version":"2012-10-17","Statement":` + statements + "}")
}

// written is an account whose role has a trust policy that a test has written.
type written string

func (w written) Rule(_ context.Context, q doctor.TrustQuery) doctor.Finding {
	return aws.CheckPolicy(&q, string(w))
}

// parsed runs the checks on a trust policy.
func parsed(t *testing.T, policy string, change ...func(*doctor.TrustQuery)) *doctor.Report {
	t.Helper()
	q := doctor.TrustQuery{Identity: roleARN, Annotations: map[string]string{annotation.AWSRoleARN: roleARN}, Claims: claimsOf("https://issuer.example", audience)}
	for _, apply := range change {
		apply(&q)
	}
	report := runRule(t.Context(), q, written(policy), 0)
	verify(t, report)
	return report
}
