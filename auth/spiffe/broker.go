package spiffe

import (
	"context"
	"time"

	"github.com/spiffe/go-spiffe/v2/exp/proto/spiffe/broker"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
)

// IDFunc returns the SPIFFE ID of a ServiceAccount. It runs on each call, also
// on cache hits, so it has to be quick and deterministic, and safe for
// concurrent use. The zero ID and an error other than an *auth.Error count as
// ErrDenied. Tenants write labels and annotations, so derive no ID from them.
type IDFunc func(serviceAccount *corev1.ServiceAccount) (spiffeid.ID, error)

// IDs returns spiffe://<trust domain>/ns/<namespace>/sa/<name>, the form that
// SPIRE's documentation uses for Kubernetes.
func IDs(trustDomain spiffeid.TrustDomain) IDFunc {
	return func(sa *corev1.ServiceAccount) (spiffeid.ID, error) {
		return spiffeid.FromSegments(trustDomain, "ns", sa.Namespace, "sa", sa.Name)
	}
}

// BrokerIssuer issues the JWT-SVIDs of ServiceAccounts with the SPIFFE Broker
// API. It belongs to the cluster of its agent (Config.ClusterID), and refuses
// calls for another cluster or without a ServiceAccount. It is safe for
// concurrent use, and keeps no token.
//
// If the agent does not know a ServiceAccount, the source reads the
// ServiceAccount once more. If it still exists, the source asks the agent
// again. A second refusal is ErrDenied.
type BrokerIssuer struct {
	api    broker.APIClient
	id     IDFunc
	config Config
}

var _ auth.SubjectIssuer = (*BrokerIssuer)(nil)

// NewBrokerIssuer returns a source that uses conn, a connection of
// NewBrokerConn. The caller closes conn. A conflict in the arguments is
// ErrMisconfigured.
func NewBrokerIssuer(conn grpc.ClientConnInterface, id IDFunc, config Config) (*BrokerIssuer, error) {
	if conn == nil || id == nil {
		return nil, fail(auth.ErrMisconfigured, "pass both", "a connection to the Broker API and a function that states "+
			"SPIFFE IDs are required").About(optionBroker)
	}
	if err := config.check(); err != nil {
		return nil, err
	}
	return &BrokerIssuer{broker.NewAPIClient(conn), id, config}, nil
}

// Key implements auth.SubjectIssuer.
func (s *BrokerIssuer) Key() string { return "spiffe broker " + s.config.ClusterID }

// Subject implements auth.SubjectIssuer. It returns Config.Issuer and the
// SPIFFE ID of the ServiceAccount.
func (s *BrokerIssuer) Subject(sa *corev1.ServiceAccount, opts *auth.Options) (auth.SubjectClaims, error) {
	id, err := s.idOf(sa, opts)
	if err != nil {
		return auth.SubjectClaims{}, err
	}
	return auth.SubjectClaims{Issuer: s.config.Issuer, Subject: id.String()}, nil
}

// idOf refuses a ServiceAccount of another cluster, because its API server
// chooses namespace, name and UID.
func (s *BrokerIssuer) idOf(sa *corev1.ServiceAccount, opts *auth.Options) (spiffeid.ID, error) {
	if sa == nil {
		e := fail(auth.ErrMisconfigured, "use the issuer of the Workload API, or name a ServiceAccount",
			"the Broker API issues tokens of ServiceAccounts alone")
		e.Cause = provider.CauseNoOwnIdentity
		return spiffeid.ID{}, e.About(optionWorkload, "auth.WithServiceAccount")
	}
	cluster := ""
	if opts != nil {
		cluster = opts.ClusterID
	}
	if cluster != s.config.ClusterID {
		return spiffeid.ID{}, fail(auth.ErrMisconfigured,
			"use a source of that cluster's agent, or name the cluster of this one",
			"the call is for the cluster %.300q, the source belongs to %.300q", cluster, s.config.ClusterID).
			About(optionCluster, "auth.WithClusterID")
	}
	id, err := s.id(sa)
	if err != nil {
		return spiffeid.ID{}, refused(err)
	}
	return id, checkID(id)
}

// Token implements auth.SubjectIssuer. It returns the JWT-SVID and its expiry.
func (s *BrokerIssuer) Token(ctx context.Context, sa *corev1.ServiceAccount, audiences []string, opts *auth.Options,
) (jwt string, expiry time.Time, err error) {
	id, err := s.idOf(sa, opts)
	if err != nil {
		return "", time.Time{}, err
	}
	request, err := newRequest(sa, id, audiences)
	if err != nil {
		return "", time.Time{}, err
	}
	answer, err := s.fetch(ctx, request)
	if status.Code(err) == codes.NotFound {
		if err := checkExists(ctx, sa, opts); err != nil {
			return "", time.Time{}, err
		}
		answer, err = s.fetch(ctx, request) // the agent's cache of ServiceAccounts may lag behind
	}
	if status.Code(err) == codes.NotFound {
		return "", time.Time{}, explained(err, "let the agent read the cluster of the ServiceAccount")
	}
	if err != nil {
		return "", time.Time{}, explained(err, "create a registration entry for the ServiceAccount, and let agent and "+
			"cluster accept the controller as a broker")
	}
	return s.accept(answer, id, audiences)
}

// accept requires exactly one SVID. SPIRE ignores the ID of the request and
// returns one for each registration entry.
func (s *BrokerIssuer) accept(answer *broker.FetchJWTSVIDResponse, id spiffeid.ID, audiences []string,
) (string, time.Time, error) {
	if n := len(answer.GetSvids()); n != 1 {
		return "", time.Time{}, fail(auth.ErrDenied, "keep one registration entry for the ServiceAccount",
			"the SPIFFE agent issues %d JWT-SVIDs for the ServiceAccount, not one for %.300q", n, id)
	}
	issued := answer.GetSvids()[0]
	if issued.GetSpiffeId() != id.String() {
		return "", time.Time{}, anotherID(issued.GetSpiffeId(), id)
	}
	svid, err := read(issued.GetSvid())
	if err != nil {
		return "", time.Time{}, err
	}
	return s.config.accept(svid, id, audiences)
}

// newRequest names the ServiceAccount by namespace, name and UID. The agent
// compares all three.
func newRequest(sa *corev1.ServiceAccount, id spiffeid.ID, audiences []string) (*broker.FetchJWTSVIDRequest, error) {
	switch {
	case len(audiences) == 0:
		return nil, noAudience()
	case sa.Namespace == "" || sa.Name == "" || sa.UID == "":
		return nil, fail(auth.ErrMisconfigured, "use a client that returns the whole object",
			"the ServiceAccount has no namespace, name or UID").About("auth.WithServiceAccount")
	}
	reference, err := anypb.New(&broker.KubernetesObjectReference{
		Type: &broker.KubernetesObjectType{Plural: "serviceaccounts", Group: "core"},
		Key:  &broker.KubernetesObjectKey{Namespace: sa.Namespace, Name: sa.Name},
		Uid:  string(sa.UID),
	})
	if err != nil {
		return nil, unusable("%v", err)
	}
	return &broker.FetchJWTSVIDRequest{Reference: &broker.WorkloadReference{Reference: reference}, Audience: audiences,
		SpiffeId: id.String()}, nil
}

// maxAnswer is the largest answer in bytes.
const maxAnswer = 256 << 10

// fetch sends the security header that each client of the Broker API has to
// send (SPIFFE Broker Endpoint, section 3).
func (s *BrokerIssuer) fetch(ctx context.Context, request *broker.FetchJWTSVIDRequest,
) (answer *broker.FetchJWTSVIDResponse, err error) {
	ctx = metadata.NewOutgoingContext(ctx, metadata.Pairs("broker.spiffe.io", "true"))
	err = retry(ctx, func(ctx context.Context) (err error) {
		answer, err = s.api.FetchJWTSVID(ctx, request, grpc.MaxCallRecvMsgSize(maxAnswer))
		return err
	})
	return answer, err
}

// checkExists reads the ServiceAccount again, because the agent does not know
// it.
func checkExists(ctx context.Context, sa *corev1.ServiceAccount, opts *auth.Options) error {
	if opts == nil || opts.Client == nil {
		return nil
	}
	var now corev1.ServiceAccount
	switch err := opts.Client.Get(ctx, client.ObjectKeyFromObject(sa), &now); {
	case apierrors.IsNotFound(err):
		e := fail(auth.ErrDenied, "", "the ServiceAccount no longer exists")
		e.Cause, e.Err = provider.CauseServiceAccountNotFound, err
		return e
	case err != nil:
		e := fail(auth.ErrUnavailable, "", "the SPIFFE agent does not know the ServiceAccount, which cannot be read again")
		e.Err = err
		return e
	case now.UID != sa.UID:
		return fail(auth.ErrUnavailable, "", "the ServiceAccount was re-created; the next call reads it")
	}
	return nil
}
