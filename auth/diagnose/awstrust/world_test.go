package awstrust_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/diagnose"
	"github.com/workloadid/workloadid/auth/diagnose/awstrust"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	account    = "123456789012"
	platform   = "arn:aws:iam::" + account + ":user/platform"
	roleARN    = "arn:aws:iam::" + account + ":role/team/tenant-a"
	clusterARN = "arn:aws:eks:eu-central-1:" + account + ":cluster/prod"
	subject    = "system:serviceaccount:tenant-a:app"
)

// world is an account in which everything fits, until a test changes that.
type world struct {
	*testing.T
	issuer *authtest.Issuer
	cloud  *authtest.Cloud
	reader *awstrust.Reader
	config diagnose.Config
}

// sharedIssuer has one key for all: making one takes long.
var sharedIssuer = sync.OnceValues(func() (*authtest.Issuer, error) { return authtest.NewIssuer(authtest.IssuerConfig{}) })

func newWorld(t *testing.T) *world {
	t.Helper()
	issuer, err := sharedIssuer()
	if err != nil {
		t.Fatal(err)
	}
	cloud, err := authtest.NewCloud()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cloud.Close)
	w := &world{T: t, issuer: issuer, cloud: cloud, reader: &awstrust.Reader{HTTPClient: cloud.Client()}}
	w.login(account, "platform")
	w.cloud.AWS().AddOIDCProvider(account, issuer.URL(), issuer.HTTPClient(), aws.DefaultAudience)
	w.role(authtest.Trust{Subjects: []string{subject}})
	w.config = diagnose.Config{Provider: &aws.Provider{}, Trust: w.reader, Access: w.reader, IssuerClient: issuer.HTTPClient(), Token: w.token(),
		ServiceAccount: client.ObjectKey{Namespace: "tenant-a", Name: "app"}, Annotations: map[string]string{aws.RoleARNAnnotation: roleARN},
		Options: []auth.Option{auth.WithHTTPClient(cloud.Client()), auth.WithSTSRegion("eu-central-1")}}
	return w
}

// login has the reader use a new user's access key.
func (w *world) login(account, name string) {
	id, secret := w.cloud.AWS().AddUser(account, name)
	w.reader.Credentials = credentials.NewStaticCredentialsProvider(id, secret, "")
}

func (w *world) role(trust authtest.Trust) {
	trust.Issuer = w.issuer.URL()
	w.cloud.AWS().SetRole(roleARN, trust)
}

func (w *world) token() string {
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app", UID: "0b7c4a4e-0000-4000-8000-000000000001"}}
	signed, err := w.issuer.Sign(w.issuer.Claims(sa, []string{aws.DefaultAudience}, time.Hour))
	if err != nil {
		w.Fatal(err)
	}
	return signed
}

// run also holds the report to what every report has to keep to.
func (w *world) run() *diagnose.Report {
	w.Helper()
	report := diagnose.Run(w.Context(), w.config)
	if text := report.String(); strings.Contains(text, w.config.Token) || strings.Contains(text, "<html") {
		w.Errorf("it shows a token or an answer:\n%s", text)
	}
	return report
}

// eks is a cluster of EKS that answers with a status to whoever asks who he is.
func (w *world) eks(mode string, status int) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(status)
		if status == http.StatusCreated {
			_, _ = rw.Write([]byte(`{"status":{"userInfo":{"username":"tenant-a"}}}`))
		}
	}))
	w.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	w.cloud.AWS().SetEKSCluster(authtest.EKSCluster{ARN: clusterARN, Endpoint: server.URL, CA: ca, AuthenticationMode: mode})
	w.config.Cluster = clusterARN
}
