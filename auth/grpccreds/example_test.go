package grpccreds_test

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/auth/grpccreds"
	"github.com/workloadid/workloadid/cache"
)

// Service is a client of a gRPC service that all tenants share.
type Service struct {
	client   healthpb.HealthClient
	provider *exchange.Provider
	kube     auth.KubernetesClient
	tokens   *cache.TokenCache
}

// Check calls the service as a ServiceAccount, over the connection of all.
func (s *Service) Check(ctx context.Context, key client.ObjectKey) (*healthpb.HealthCheckResponse, error) {
	creds := grpccreds.New(s.provider, (*exchange.Token).Reveal, auth.WithServiceAccount(key, s.kube),
		auth.WithCache(s.tokens, cache.InvolvedObject{Kind: "Report", Namespace: key.Namespace, Name: "daily"}))
	return s.client.Check(ctx, &healthpb.HealthCheckRequest{}, grpc.PerRPCCredentials(creds))
}

func ExampleNew() {
	conn, err := grpc.NewClient("api.example.com:443", grpc.WithTransportCredentials(credentials.NewTLS(nil)))
	if err != nil {
		return
	}
	defer conn.Close() //nolint:errcheck // nothing was sent
	tokens, err := cache.NewTokenCache(1000)
	if err != nil {
		return
	}
	defer tokens.Close()
	service := &Service{client: healthpb.NewHealthClient(conn), tokens: tokens,
		provider: exchange.NewKeycloak("https://login.example.com/realms/one")}
	_ = service // its reconcilers call Check
}
