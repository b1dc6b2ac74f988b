package awstrust_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"go.uber.org/goleak"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/internal/olddoctor/awstrust"
	"github.com/workloadid/workloadid/internal/olddoctor/internal/trusttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	account    = "123456789012"
	platform   = "arn:aws:iam::" + account + ":user/platform"
	roleARN    = "arn:aws:iam::" + account + ":role/team/tenant-a"
	clusterARN = "arn:aws:eks:eu-central-1:" + account + ":cluster/prod"
	subject    = trusttest.Subject
)

// world is an account in which everything fits, until a test changes that.
type world struct {
	*trusttest.World
	reader *awstrust.Reader
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{trusttest.New(t, &aws.Provider{}, aws.DefaultAudience, map[string]string{aws.RoleARNAnnotation: roleARN}), nil}
	w.reader = &awstrust.Reader{HTTPClient: w.Cloud.Client()}
	w.login(account, "platform")
	w.Cloud.AWS().AddOIDCProvider(account, w.Issuer.URL(), w.Issuer.HTTPClient(), aws.DefaultAudience)
	w.role(authtest.Trust{Subjects: []string{subject}})
	w.Config.Trust, w.Config.Access, w.Config.Options = w.reader, w.reader, append(w.Config.Options, auth.WithSTSRegion("eu-central-1"))
	return w
}

// login has the reader use a new user's access key.
func (w *world) login(account, name string) {
	id, secret := w.Cloud.AWS().AddUser(account, name)
	w.reader.Credentials = credentials.NewStaticCredentialsProvider(id, secret, "")
}

func (w *world) role(trust authtest.Trust) {
	trust.Issuer = w.Issuer.URL()
	w.Cloud.AWS().SetRole(roleARN, trust)
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
	w.Cloud.AWS().SetEKSCluster(authtest.EKSCluster{ARN: clusterARN, Endpoint: server.URL, CA: ca, AuthenticationMode: mode})
	w.Config.Cluster = clusterARN
}
