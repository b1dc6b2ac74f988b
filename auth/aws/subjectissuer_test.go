package aws_test

import (
	"cmp"
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// issued is a SubjectIssuer of an issuer other than the cluster's.
type issued struct{ *cloudtest.Issuer }

func (issued) Key() string { return "issued" }

func (i issued) Subject(sa *corev1.ServiceAccount, _ *auth.Options) (auth.SubjectClaims, error) {
	sa = cmp.Or(sa, testenv.ServiceAccount("system", "controller"))
	return auth.SubjectClaims{Issuer: i.URL(), Subject: "spiffe://trust.example/ns/" + sa.Namespace + "/sa/" + sa.Name},
		nil
}

func (i issued) Token(_ context.Context, sa *corev1.ServiceAccount, audiences []string, opts *auth.Options,
) (jwt string, expiry time.Time, err error) {
	stated, err := i.Subject(sa, opts)
	if err != nil {
		return "", time.Time{}, err
	}
	claims := i.Claims(&corev1.ServiceAccount{}, audiences, 5*time.Minute)
	claims["iss"], claims["sub"] = stated.Issuer, stated.Subject
	delete(claims, "kubernetes.io")
	jwt, err = i.Sign(claims)
	return jwt, time.Now().Add(5 * time.Minute), err
}

// AWS takes the token of a source like the cluster's own. The remedy names what
// the role has to trust, and a session of the controller has its own name.
func TestRoleTrustsAnotherIssuer(t *testing.T) {
	w := newEnvironment(t)
	other, err := cloudtest.NewIssuer(cloudtest.IssuerConfig{URL: "https://trust.example"})
	if err != nil {
		t.Fatal(err)
	}
	w.Cloud.AWS().AddOIDCProvider(account, other.URL(), other.HTTPClient(), aws.DefaultAudience)
	source := auth.WithSubjectIssuer(issued{other})
	_, err = w.get(t, "tenant-a", "app", source)
	testenv.CheckError(t, err, auth.ErrDenied, `"spiffe://trust.example/ns/tenant-a/sa/app"`,
		`the issuer "https://trust.example"`)
	w.Cloud.AWS().SetRole(role("tenant-a"), cloudtest.Trust{Issuer: other.URL(),
		Subjects: []string{"spiffe://trust.example/ns/tenant-a/sa/app"}})
	if _, err := w.get(t, "tenant-a", "app", source); err != nil {
		t.Error(err)
	}
	w.Cloud.AWS().SetRole(role("controller"), cloudtest.Trust{Issuer: other.URL(),
		Subjects: []string{"spiffe://trust.example/ns/system/sa/controller"}})
	own, err := get(t, &aws.Provider{}, source, auth.WithSTSRegion("eu-central-1"), auth.WithHTTPClient(w.Cloud.Client()),
		auth.WithControllerAnnotations(map[string]string{aws.RoleARNAnnotation: role("controller")}))
	if err != nil {
		t.Fatal(err)
	}
	if got := own.SessionName(); got != "workloadid" {
		t.Errorf("the controller's session is %q, want %q", got, "workloadid")
	}
}
