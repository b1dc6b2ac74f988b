// Package spiffetest simulates a SPIFFE agent in memory, for tests of
// controllers that use package spiffe.
//
// It serves the JWT-SVIDs of both APIs, as SPIRE 1.15 does. The Broker
// API compares namespace, name and UID of a ServiceAccount with the cluster. It
// returns the SVIDs of all registration entries, whatever SPIFFE ID the request
// names. The Workload API has one client, the controller. Both require their
// security header.
//
// It does not imitate mutual TLS, X.509-SVIDs, bundles, selectors, hints, or
// the policy about brokers.
package spiffetest

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/exp/proto/spiffe/broker"
	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cloudtest"
)

// Lifetime is the lifetime of the JWT-SVIDs, the default of SPIRE.
const Lifetime = 5 * time.Minute

// Agent is a SPIFFE agent. It is safe for concurrent use.
type Agent struct {
	issuer   *cloudtest.Issuer
	kube     auth.KubernetesClient
	listener *bufconn.Listener
	server   *grpc.Server
	serving  sync.WaitGroup

	mu      sync.Mutex
	entries map[client.ObjectKey][]spiffeid.ID
	before  func(context.Context, client.ObjectKey) error
	claims  func(map[string]any)
	fetches int
}

// NewAgent starts an agent. The issuer signs its JWT-SVIDs, and the issuer's
// URL is the claim iss. kube is the cluster.
func NewAgent(issuer *cloudtest.Issuer, kube auth.KubernetesClient) *Agent {
	a := &Agent{issuer: issuer, kube: kube, listener: bufconn.Listen(1 << 16), server: grpc.NewServer(),
		entries: map[client.ObjectKey][]spiffeid.ID{}}
	a.RegisterAt(a.server)
	a.serving.Go(func() { _ = a.server.Serve(a.listener) }) // until Close
	return a
}

// Close stops the agent. Calls in flight fail.
func (a *Agent) Close() {
	a.server.Stop()
	a.serving.Wait()
}

// RegisterAt serves both APIs at another server too, such as one with mutual
// TLS.
func (a *Agent) RegisterAt(server grpc.ServiceRegistrar) {
	broker.RegisterAPIServer(server, brokerAPI{Agent: a})
	workload.RegisterSpiffeWorkloadAPIServer(server, workloadAPI{Agent: a})
}

// Conn returns a connection to the agent, for spiffe.NewBrokerIssuer. The
// caller closes it.
func (a *Agent) Conn() (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///agent", append(a.dial(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))...)
}

// Workload returns a client of the Workload API, for spiffe.NewWorkloadIssuer.
// The caller closes it.
func (a *Agent) Workload() (*workloadapi.Client, error) {
	return workloadapi.New(context.Background(), workloadapi.WithAddr("tcp://127.0.0.1:1"),
		workloadapi.WithDialOptions(a.dial()...))
}

func (a *Agent) dial() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return a.listener.DialContext(ctx)
	})}
}

// Register adds a registration entry for a ServiceAccount, or for the
// controller if the key is empty.
func (a *Agent) Register(serviceAccount client.ObjectKey, id spiffeid.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.entries[serviceAccount] = append(a.entries[serviceAccount], id)
}

// Unregister removes the registration entries.
func (a *Agent) Unregister(serviceAccount client.ObjectKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.entries, serviceAccount)
}

// SetBefore sets a function that runs before each answer. Its error becomes the
// answer. The key names the ServiceAccount, and is empty for the controller.
// Nil removes the function.
func (a *Agent) SetBefore(before func(ctx context.Context, serviceAccount client.ObjectKey) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.before = before
}

// SetClaims sets a function that changes the claims of each JWT-SVID before it
// is signed. Nil removes the function.
func (a *Agent) SetClaims(change func(claims map[string]any)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.claims = change
}

// Fetches returns the number of requests for JWT-SVIDs.
func (a *Agent) Fetches() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.fetches
}

// begin checks what both APIs check, and returns the SPIFFE IDs.
func (a *Agent) begin(ctx context.Context, header string, of client.ObjectKey, audiences []string) ([]spiffeid.ID,
	error) {
	a.mu.Lock()
	before, ids := a.before, slices.Clone(a.entries[of])
	a.fetches++
	a.mu.Unlock()
	if md, _ := metadata.FromIncomingContext(ctx); !slices.Equal(md[header], []string{"true"}) {
		return nil, status.Error(codes.InvalidArgument, "security header missing from request")
	}
	if before != nil {
		if err := before(ctx, of); err != nil {
			return nil, err
		}
	}
	if len(audiences) == 0 {
		return nil, status.Error(codes.InvalidArgument, "audience must be specified")
	}
	return ids, nil
}

func (a *Agent) sign(id spiffeid.ID, audiences []string) (string, error) {
	claims := a.issuer.Claims(&corev1.ServiceAccount{}, audiences, Lifetime)
	delete(claims, "kubernetes.io")
	claims["sub"] = id.String()
	a.mu.Lock()
	change := a.claims
	a.mu.Unlock()
	if change != nil {
		change(claims)
	}
	return a.issuer.Sign(claims)
}

var errNoIdentity = status.Error(codes.PermissionDenied, "no identity issued")

// brokerAPI is the Broker API.
type brokerAPI struct {
	broker.UnimplementedAPIServer
	*Agent
}

// FetchJWTSVID implements broker.APIServer.
func (a brokerAPI) FetchJWTSVID(ctx context.Context, r *broker.FetchJWTSVIDRequest) (*broker.FetchJWTSVIDResponse,
	error) {
	var reference broker.KubernetesObjectReference
	if err := r.GetReference().GetReference().UnmarshalTo(&reference); err != nil {
		return nil, status.Error(codes.InvalidArgument, "unsupported reference type")
	}
	of := client.ObjectKey{Namespace: reference.GetKey().GetNamespace(), Name: reference.GetKey().GetName()}
	ids, err := a.begin(ctx, "broker.spiffe.io", of, r.GetAudience())
	if err == nil {
		err = a.resolve(ctx, &reference, of)
	}
	if err == nil && len(ids) == 0 {
		err = errNoIdentity
	}
	answer := &broker.FetchJWTSVIDResponse{}
	for _, id := range ids {
		var token string
		if err == nil {
			token, err = a.sign(id, r.GetAudience())
		}
		answer.Svids = append(answer.Svids, &broker.JWTSVID{SpiffeId: id.String(), Svid: token})
	}
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// resolve reads the ServiceAccount that a broker names.
func (a brokerAPI) resolve(ctx context.Context, r *broker.KubernetesObjectReference, of client.ObjectKey) error {
	if r.GetType().GetPlural() != "serviceaccounts" || r.GetType().GetGroup() != "core" {
		return status.Error(codes.InvalidArgument, "unknown Kubernetes resource")
	}
	var sa corev1.ServiceAccount
	switch err := a.kube.Get(ctx, of, &sa); {
	case apierrors.IsNotFound(err):
		return status.Errorf(codes.NotFound, "ServiceAccount %s not found", of)
	case err != nil:
		return status.Error(codes.Internal, "unable to get ServiceAccount")
	case string(sa.UID) != r.GetUid():
		return status.Errorf(codes.NotFound, "serviceaccounts.core %s has another UID", of)
	}
	return nil
}

// workloadAPI is the Workload API.
type workloadAPI struct {
	workload.UnimplementedSpiffeWorkloadAPIServer
	*Agent
}

// FetchJWTSVID implements workload.SpiffeWorkloadAPIServer.
func (a workloadAPI) FetchJWTSVID(ctx context.Context, r *workload.JWTSVIDRequest) (*workload.JWTSVIDResponse, error) {
	ids, err := a.begin(ctx, "workload.spiffe.io", client.ObjectKey{}, r.GetAudience())
	if err != nil {
		return nil, err
	}
	answer := &workload.JWTSVIDResponse{}
	for _, id := range ids {
		if r.GetSpiffeId() != "" && r.GetSpiffeId() != id.String() {
			continue
		}
		token, err := a.sign(id, r.GetAudience())
		if err != nil {
			return nil, err
		}
		answer.Svids = append(answer.Svids, &workload.JWTSVID{SpiffeId: id.String(), Svid: token})
	}
	if len(answer.Svids) == 0 {
		return nil, errNoIdentity
	}
	return answer, nil
}
