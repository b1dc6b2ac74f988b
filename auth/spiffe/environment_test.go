package spiffe_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/exp/proto/spiffe/broker"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/auth/spiffe"
	"github.com/workloadid/workloadid/auth/spiffe/spiffetest"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const account = "123456789012"

var trustDomain = spiffeid.RequireTrustDomainFromString("example.org")

func role(tenant string) string { return "arn:aws:iam::" + account + ":role/" + tenant }

func idOf(tenant, name string) spiffeid.ID {
	return spiffeid.RequireFromSegments(trustDomain, "ns", tenant, "sa", name)
}

func key(tenant, name string) client.ObjectKey {
	return client.ObjectKey{Namespace: tenant, Name: name}
}

var controllerID = idOf("system", "controller")

// trustIssuer signs the JWT-SVIDs of all tests. A key takes long to make.
var trustIssuer = sync.OnceValues(func() (*cloudtest.Issuer, error) {
	return cloudtest.NewIssuer(cloudtest.IssuerConfig{URL: "https://oidc.example.org"})
})

// environment is a cluster with two tenants and an agent, and a cloud that
// trusts the trust domain alone.
type environment struct {
	*testenv.Environment
	agent  *spiffetest.Agent
	conn   *grpc.ClientConn
	source *spiffe.BrokerIssuer
}

// newEnvironment is newTrust with a cloud, whose sockets work in no bubble of
// synctest.
func newEnvironment(t testing.TB, more ...client.Object) *environment {
	t.Helper()
	w := newTrust(t, more...)
	w.Cloud = testenv.Cloud(t)
	w.Cloud.AWS().AddOIDCProvider(account, w.Issuer.URL(), w.Issuer.HTTPClient(), aws.DefaultAudience)
	for _, tenant := range []string{"tenant-a", "tenant-b"} {
		w.Cloud.AWS().SetRole(role(tenant), cloudtest.Trust{Issuer: w.Issuer.URL(),
			Subjects: []string{idOf(tenant, "app").String()}})
	}
	return w
}

// newTrust registers the ServiceAccounts "app" of both tenants, and the
// controller.
func newTrust(t testing.TB, more ...client.Object) *environment {
	t.Helper()
	issuer, err := trustIssuer()
	if err != nil {
		t.Fatal(err)
	}
	for _, tenant := range []string{"tenant-a", "tenant-b"} {
		more = append(more, testenv.ServiceAccount(tenant, "app", aws.RoleARNAnnotation, role(tenant)))
	}
	w := &environment{Environment: &testenv.Environment{Issuer: issuer, Client: testenv.Issuer(t).Client(more...)}}
	w.agent = spiffetest.NewAgent(issuer, w.Client)
	t.Cleanup(w.agent.Close)
	w.agent.Register(client.ObjectKey{}, controllerID)
	for _, tenant := range []string{"tenant-a", "tenant-b"} {
		w.agent.Register(key(tenant, "app"), idOf(tenant, "app"))
	}
	if w.conn, err = w.agent.Conn(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.conn.Close() })
	w.source = newSource(t, w.conn, spiffe.Config{Issuer: issuer.URL()})
	return w
}

// service is a provider without a network. Its credentials are valid for an
// hour.
type service struct{}

type credential struct{ until time.Time }

func (c credential) GetDuration() time.Duration { return time.Until(c.until) }

func (service) GetName() string { return "service" }

func (service) GetAudiences(context.Context, *corev1.ServiceAccount, *provider.Options) ([]string, error) {
	return audience, nil
}

func (service) GetIdentity(*corev1.ServiceAccount, *provider.Options) (string, error) { return "", nil }

func (service) NewControllerToken(context.Context, *provider.Options) (auth.Token, error) {
	return nil, errors.New("not used")
}

func (service) NewTokenForServiceAccount(context.Context, string, *corev1.ServiceAccount, *provider.Options,
) (auth.Token, error) {
	return credential{time.Now().Add(time.Hour)}, nil
}

// call gets a credential of the service.
func (w *environment) call(ctx context.Context, tenant string, more ...auth.Option) error {
	opts := []auth.Option{auth.WithSubjectIssuer(w.source), auth.WithServiceAccount(key(tenant, "app"), w.Client),
		testenv.Owner(tenant)}
	_, err := auth.GetAccessToken(ctx, service{}, append(opts, more...)...)
	return err
}

func newSource(t testing.TB, conn grpc.ClientConnInterface, config spiffe.Config) *spiffe.BrokerIssuer {
	t.Helper()
	source, err := spiffe.NewBrokerIssuer(conn, spiffe.IDs(trustDomain), config)
	if err != nil {
		t.Fatal(err)
	}
	return source
}

// options are those of a call for a ServiceAccount.
func (w *environment) options(tenant, name string, more ...auth.Option) []auth.Option {
	more = append([]auth.Option{auth.WithSubjectIssuer(w.source), auth.WithSTSRegion("eu-central-1")}, more...)
	return w.Options(tenant, name, more...)
}

func (w *environment) get(ctx context.Context, tenant, name string, more ...auth.Option) (*aws.Token, error) {
	token, err := auth.GetAccessToken(ctx, &aws.Provider{}, w.options(tenant, name, more...)...)
	if err != nil {
		return nil, err
	}
	return aws.FromToken(token)
}

// subjectOf returns the subject for which AWS made a session.
func (w *environment) subjectOf(token *aws.Token) string {
	id, _ := w.Cloud.AWS().Identity(token.AccessKeyID())
	return id.Subject
}

// serviceAccount returns a ServiceAccount as the core passes it to a source.
func serviceAccount(tenant, uid string) *corev1.ServiceAccount {
	sa := testenv.ServiceAccount(tenant, "app")
	sa.UID = types.UID(uid)
	return sa
}

// answers is a connection whose Broker API gives any answer. It records the
// requests.
type answers struct {
	answer func(n int) (*broker.FetchJWTSVIDResponse, error)

	mu       sync.Mutex
	requests []*broker.FetchJWTSVIDRequest
}

func (a *answers) Invoke(_ context.Context, _ string, request, reply any, _ ...grpc.CallOption) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	sent, ok := request.(*broker.FetchJWTSVIDRequest)
	into, known := reply.(proto.Message)
	if !ok || !known {
		return errors.New("unexpected method")
	}
	a.requests = append(a.requests, proto.CloneOf(sent))
	answer, err := a.answer(len(a.requests))
	if err == nil {
		proto.Merge(into, answer)
	}
	return err
}

func (*answers) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	panic("the source uses no stream")
}

// one is the answer with one SVID.
func one(id, token string) *broker.FetchJWTSVIDResponse {
	return &broker.FetchJWTSVIDResponse{Svids: []*broker.JWTSVID{{SpiffeId: id, Svid: token}}}
}

// sign returns the JWT-SVID of tenant-a for AWS with changed claims.
func sign(t testing.TB, change func(claims map[string]any)) string {
	t.Helper()
	issuer, err := trustIssuer()
	if err != nil {
		t.Fatal(err)
	}
	claims := issuer.Claims(serviceAccount("tenant-a", ""), []string{aws.DefaultAudience}, spiffetest.Lifetime)
	claims["sub"] = idOf("tenant-a", "app").String()
	delete(claims, "kubernetes.io")
	if change != nil {
		change(claims)
	}
	token, err := issuer.Sign(claims)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func set(name string, value any) func(map[string]any) {
	return func(claims map[string]any) {
		if claims[name] = value; value == nil {
			delete(claims, name)
		}
	}
}

var audience = []string{aws.DefaultAudience}
