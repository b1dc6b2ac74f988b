package clouds_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"slices"
	"strings"
	"testing"

	kms "cloud.google.com/go/kms/apiv1"
	"cloud.google.com/go/kms/apiv1/kmspb"
	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// google is a project that trusts a cluster. The ServiceAccount app of tenant-a
// may use its services, the one of tenant-b may not.
type google struct{ *testenv.Environment }

func newGoogle(t *testing.T) *google {
	t.Helper()
	annotations := []string{gcp.WorkloadIdentityProviderAnnotation, gcpProvider}
	g := &google{testenv.New(t, testenv.ServiceAccount("tenant-a", "app", annotations...),
		testenv.ServiceAccount("tenant-b", "app", annotations...))}
	g.Cloud.GCP().SetWorkloadIdentityProvider(gcpProvider,
		cloudtest.WorkloadIdentityProvider{Issuer: g.Issuer.URL(), Fetch: g.Issuer.HTTPClient()})
	return g
}

// serve serves gRPC at a host of Google, with TLS, to bearers of tenant-a.
func (g *google) serve(host string, register func(*grpc.Server)) {
	server := grpc.NewServer(grpc.UnaryInterceptor(
		func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			if err := g.authorize(ctx); err != nil {
				return nil, err
			}
			return handler(ctx, request)
		}))
	register(server)
	g.Cloud.Handle(host, server)
}

func (g *google) authorize(ctx context.Context) error {
	headers, _ := metadata.FromIncomingContext(ctx)
	bearer, _ := strings.CutPrefix(strings.Join(headers.Get("authorization"), ","), "Bearer ")
	caller, ok := g.Cloud.GCP().Identity(bearer)
	member := "principal://iam.googleapis.com/" + gcpPool + "/subject/" + testenv.Subject("tenant-a", "app")
	switch {
	case !ok:
		return status.Error(codes.Unauthenticated, "invalid authentication credentials")
	case !slices.Contains(caller.Members, member):
		return status.Error(codes.PermissionDenied, "the caller does not have permission")
	}
	return nil
}

// options connect a client of Google to the service at host.
func (g *google) options(t *testing.T, host string, credential option.ClientOption) []option.ClientOption {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(g.Cloud.CA()) {
		t.Fatal("the cloud has no CA")
	}
	return []option.ClientOption{credential, option.WithEndpoint("passthrough:///" + host + ":443"),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(
			credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}))),
		option.WithGRPCDialOption(grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return g.Cloud.DialContext(ctx, "tcp", address)
		}))}
}

// A controller publishes with the TokenSource of a tenant.
func TestPublishToPubSub(t *testing.T) {
	const host, topic = "pubsub.googleapis.com", "projects/my-project/topics/tenant-a"
	g := newGoogle(t)
	topics := pstest.NewServer()
	t.Cleanup(func() { _ = topics.Close() }) // reports what the test did not wait for
	g.serve(host, func(s *grpc.Server) { pubsubpb.RegisterPublisherServer(s, &topics.GServer) })
	if _, err := topics.GServer.CreateTopic(t.Context(), &pubsubpb.Topic{Name: topic}); err != nil {
		t.Fatal(err)
	}
	publish := func(namespace string) (string, error) {
		source := gcp.NewTokenSource(t.Context(), g.Options(namespace, "app", testenv.Cached(t, namespace))...)
		client, err := pubsub.NewClient(t.Context(), "my-project", g.options(t, host, option.WithTokenSource(source))...)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close() //nolint:errcheck // holds nothing
		return client.Publisher(topic).Publish(t.Context(), &pubsub.Message{Data: []byte("deployed")}).Get(t.Context())
	}
	id, err := publish("tenant-a")
	if err != nil {
		t.Fatal(err)
	}
	if m := topics.Message(id); m == nil || string(m.Data) != "deployed" {
		t.Errorf("the topic has %+v", m)
	}
	if _, err := publish("tenant-b"); status.Code(err) != codes.PermissionDenied {
		t.Errorf("tenant-b: got %v, want PermissionDenied", err)
	}
}

// keys returns Google's client of KMS with the Credentials of a call.
func (g *google) keys(t *testing.T, host string, opts []auth.Option) *kms.KeyManagementClient {
	t.Helper()
	c, err := kms.NewKeyManagementClient(t.Context(),
		g.options(t, host, option.WithAuthCredentials(gcp.NewCredentials(opts...).Credentials))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // holds nothing
	return c
}

// A controller decrypts with the Credentials of a tenant.
func TestDecryptWithGoogleKMS(t *testing.T) {
	const host, key = "cloudkms.googleapis.com", "projects/p/locations/europe-west1/keyRings/sops/cryptoKeys/tenant-a"
	g := newGoogle(t)
	g.serve(host, func(s *grpc.Server) { kmspb.RegisterKeyManagementServiceServer(s, googleKey{}) })
	client := func(namespace string) *kms.KeyManagementClient {
		return g.keys(t, host, g.Options(namespace, "app", testenv.Cached(t, namespace)))
	}
	a := client("tenant-a")
	sealed, err := a.Encrypt(t.Context(), &kmspb.EncryptRequest{Name: key, Plaintext: []byte("a secret")})
	if err != nil {
		t.Fatal(err)
	}
	request := &kmspb.DecryptRequest{Name: key, Ciphertext: sealed.Ciphertext}
	if opened, err := a.Decrypt(t.Context(), request); err != nil || string(opened.Plaintext) != "a secret" {
		t.Errorf("got %v, %v, want a secret", opened, err)
	}
	if n := g.Cloud.Calls("gcp-sts", ""); n != 1 {
		t.Errorf("%d exchanges for two calls, want 1", n)
	}
	if _, err := client("tenant-b").Decrypt(t.Context(), request); status.Code(err) != codes.PermissionDenied {
		t.Errorf("tenant-b: got %v, want PermissionDenied", err)
	}
}

// gRPC drops the kind of an adapter's error and keeps its text. GetCredentials
// returns the error itself.
func TestGoogleKMSKeepsTheText(t *testing.T) {
	const host = "cloudkms.googleapis.com"
	g := newGoogle(t)
	g.serve(host, func(s *grpc.Server) { kmspb.RegisterKeyManagementServiceServer(s, googleKey{}) })
	g.Cloud.GCP().RemoveWorkloadIdentityProvider(gcpProvider)
	opts := g.Options("tenant-a", "app", testenv.Cached(t, "tenant-a"))
	_, err := g.keys(t, host, opts).Decrypt(t.Context(), &kmspb.DecryptRequest{Name: "key"})
	if status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), `ServiceAccount "tenant-a/app"`) {
		t.Errorf("the client returns %v, want Unauthenticated with the ServiceAccount", err)
	}
	_, err = (&gcp.Provider{}).GetCredentials(t.Context(), opts...)
	testenv.CheckError(t, err, auth.ErrMisconfigured, `ServiceAccount "tenant-a/app"`)
}

// googleKey encrypts nothing: a ciphertext is the key's name and the plaintext.
type googleKey struct {
	kmspb.UnimplementedKeyManagementServiceServer
}

func (googleKey) Encrypt(_ context.Context, r *kmspb.EncryptRequest) (*kmspb.EncryptResponse, error) {
	return &kmspb.EncryptResponse{Name: r.Name, Ciphertext: append([]byte(r.Name+" "), r.Plaintext...)}, nil
}

func (googleKey) Decrypt(_ context.Context, r *kmspb.DecryptRequest) (*kmspb.DecryptResponse, error) {
	opened, ok := strings.CutPrefix(string(r.Ciphertext), r.Name+" ")
	if !ok {
		return nil, status.Error(codes.InvalidArgument, "Decryption failed: the ciphertext is invalid")
	}
	return &kmspb.DecryptResponse{Plaintext: []byte(opened)}, nil
}
