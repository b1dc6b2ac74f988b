package grpccreds_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/auth/grpccreds"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/auth/token"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testca"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// environment is a cluster with two tenants, an authorization server that
// trusts them, and a gRPC server that knows its tokens.
type environment struct {
	*testenv.Environment
	address string
	secure  credentials.TransportCredentials
	// received counts the RPCs at the server.
	received atomic.Int32
}

func newEnvironment(t *testing.T) *environment {
	t.Helper()
	w := &environment{Environment: testenv.New(t, testenv.ServiceAccount("tenant-a", "app"),
		testenv.ServiceAccount("tenant-b", "app"))}
	oauth := w.Cloud.OAuth()
	oauth.AddIssuer(w.Issuer.URL(), w.Issuer.HTTPClient(), oauth.TokenEndpoint())
	oauth.AddGrant(cloudtest.OAuthGrant{Issuer: w.Issuer.URL(),
		Subjects: []string{testenv.Subject("tenant-a", "app"), testenv.Subject("tenant-b", "app")}})
	ca := testca.New(t, "ca")
	certificate := ca.Issue(t)
	w.address = w.serve(t, grpc.Creds(credentials.NewServerTLSFromCert(&certificate)))
	trusted := x509.NewCertPool()
	trusted.AddCert(ca.Certificate)
	w.secure = credentials.NewTLS(&tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12})
	return w
}

// serve starts a server with the standard service for health, which answers
// with the subject of the token in a header.
func (w *environment) serve(t *testing.T, opts ...grpc.ServerOption) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // does not wait
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(append(opts, grpc.UnaryInterceptor(w.identify))...)
	healthpb.RegisterHealthServer(server, health.NewServer())
	go server.Serve(listener) //nolint:errcheck // until Stop
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

func (w *environment) identify(ctx context.Context, request any, _ *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (any, error) {
	incoming, _ := metadata.FromIncomingContext(ctx)
	sent := incoming.Get("authorization")
	w.received.Add(1)
	identity, ok := w.Cloud.OAuth().Identity(strings.TrimPrefix(strings.Join(sent, " "), "Bearer "))
	if !ok {
		return nil, status.Error(codes.Unauthenticated, "no token of a tenant")
	}
	if err := grpc.SetHeader(ctx, metadata.Pairs("subject", identity.Subject)); err != nil {
		return nil, err
	}
	return handler(ctx, request)
}

func (w *environment) connect(t *testing.T, address string, opts ...grpc.DialOption) healthpb.HealthClient {
	t.Helper()
	conn, err := grpc.NewClient(address, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return healthpb.NewHealthClient(conn)
}

func (w *environment) credentials(namespace string, opts ...auth.Option) *grpccreds.Credentials {
	return grpccreds.New(&exchange.Provider{Endpoint: w.Cloud.OAuth().TokenEndpoint()}, (*exchange.Token).Reveal,
		w.Options(namespace, "app", opts...)...)
}

// check makes an RPC, and returns the identity that the server saw.
func check(ctx context.Context, client healthpb.HealthClient, opts ...grpc.CallOption) (subject string, err error) {
	var header metadata.MD
	_, err = client.Check(ctx, &healthpb.HealthCheckRequest{}, append(opts, grpc.Header(&header))...)
	return strings.Join(header.Get("subject"), ", "), err
}

func TestOneConnectionServesManyTenants(t *testing.T) {
	w := newEnvironment(t)
	client := w.connect(t, w.address, grpc.WithTransportCredentials(w.secure))
	tenants := map[string]*grpccreds.Credentials{"tenant-a": w.credentials("tenant-a"),
		"tenant-b": w.credentials("tenant-b")}
	for range 3 {
		for namespace, creds := range tenants {
			subject, err := check(t.Context(), client, grpc.PerRPCCredentials(creds))
			if want := testenv.Subject(namespace, "app"); err != nil || subject != want {
				t.Errorf("got %q, %v; want %q", subject, err, want)
			}
		}
	}
	if n := w.Cloud.Calls("oauth", "token"); n != len(tenants) {
		t.Errorf("got %d exchanges, want one a tenant", n)
	}
	if _, err := check(t.Context(), client); status.Code(err) != codes.Unauthenticated {
		t.Errorf("got %v without credentials, want the server's refusal", err)
	}
}

func TestConnectionOfOneTenant(t *testing.T) {
	w := newEnvironment(t)
	client := w.connect(t, w.address, grpc.WithTransportCredentials(w.secure),
		grpc.WithPerRPCCredentials(w.credentials("tenant-a")))
	if subject, err := check(t.Context(), client); err != nil || subject != testenv.Subject("tenant-a", "app") {
		t.Errorf("got %q, %v; want tenant-a", subject, err)
	}
}

func TestInvalidate(t *testing.T) {
	w := testenv.New(t, testenv.ServiceAccount("tenant-a", "app"))
	synctest.Test(t, func(t *testing.T) {
		creds := grpccreds.New(&token.Provider{}, (*token.Token).Reveal, w.Options("tenant-a", "app",
			auth.WithAudiences("reports"), auth.WithPolicy(auth.Policy{Audiences: []string{"reports"}}))...)
		testenv.CheckInvalidate(t, creds, func() (string, error) {
			sent, err := creds.GetRequestMetadata(t.Context())
			return sent["authorization"], err
		})
	})
}

// The error of an RPC has a code for clients of gRPC, and an auth.Error for
// reconcilers. The server sees nothing.
func TestErrors(t *testing.T) {
	for name, row := range map[string]struct {
		fault  cloudtest.Fault
		code   codes.Code
		reason provider.Reason
	}{
		"denied":        {cloudtest.Fault{Status: 400, Code: "invalid_grant"}, codes.PermissionDenied, auth.ErrDenied},
		"misconfigured": {cloudtest.Fault{Status: 401, Code: "invalid_client"}, codes.Unauthenticated, auth.ErrMisconfigured},
		"throttled":     {cloudtest.Fault{Status: 429}, codes.Unavailable, auth.ErrThrottled},
		"unavailable":   {cloudtest.Fault{Status: 503}, codes.Unavailable, auth.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			row.fault.Service = "oauth"
			w.Cloud.AddFault(row.fault)
			creds := w.credentials("tenant-a")
			for how, client := range map[string]func() (string, error){
				"of the call": func() (string, error) {
					return check(t.Context(), w.connect(t, w.address, grpc.WithTransportCredentials(w.secure)),
						grpc.PerRPCCredentials(creds))
				},
				"of the connection": func() (string, error) {
					return check(t.Context(), w.connect(t, w.address, grpc.WithTransportCredentials(w.secure),
						grpc.WithPerRPCCredentials(creds)))
				},
			} {
				_, err := client()
				if status.Code(err) != row.code {
					t.Errorf("%s: got %v with %s, want %s", how, err, status.Code(err), row.code)
				}
				testenv.CheckError(t, err, row.reason, "tenant-a/app")
			}
			if n := w.received.Load(); n != 0 {
				t.Errorf("got %d RPCs at the server, want none", n)
			}
		})
	}
}

func TestTokenOfAnotherType(t *testing.T) {
	w := newEnvironment(t)
	creds := grpccreds.New(&exchange.Provider{Endpoint: w.Cloud.OAuth().TokenEndpoint()}, (*token.Token).Reveal,
		w.Options("tenant-a", "app")...)
	_, err := check(t.Context(), w.connect(t, w.address, grpc.WithTransportCredentials(w.secure)),
		grpc.PerRPCCredentials(creds))
	if status.Code(err) != codes.Unauthenticated || !errors.Is(err, auth.ErrMisconfigured) {
		t.Errorf("got %v, want a misconfiguration", err)
	}
}

// An exchange that hangs does not outlive the RPC.
func TestContextOfTheRPC(t *testing.T) {
	w := newEnvironment(t)
	w.Cloud.AddFault(cloudtest.Fault{Service: "oauth", Hang: true})
	client := w.connect(t, w.address, grpc.WithTransportCredentials(w.secure))
	expiring, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	canceled, cancelNow := context.WithCancel(t.Context())
	cancelNow()
	for want, ctx := range map[codes.Code]context.Context{codes.DeadlineExceeded: expiring, codes.Canceled: canceled} {
		if _, err := check(ctx, client, grpc.PerRPCCredentials(w.credentials("tenant-a"))); status.Code(err) != want {
			t.Errorf("got %v with %s, want %s", err, status.Code(err), want)
		}
	}
}

func TestConnectionWithoutTLS(t *testing.T) {
	w := newEnvironment(t)
	creds := w.credentials("tenant-a")
	plain := grpc.WithTransportCredentials(insecure.NewCredentials())
	if conn, err := grpc.NewClient(w.serve(t), plain, grpc.WithPerRPCCredentials(creds)); err == nil {
		t.Errorf("got a connection, want an error: %v", conn.Close())
	}
	_, err := check(t.Context(), w.connect(t, w.serve(t), plain), grpc.PerRPCCredentials(creds))
	if status.Code(err) != codes.Unauthenticated || w.Cloud.Calls("oauth", "token") != 0 || w.received.Load() != 0 {
		t.Errorf("got %v, %d exchanges and %d RPCs; want a refusal before each", err, w.Cloud.Calls("oauth", "token"),
			w.received.Load())
	}
}
