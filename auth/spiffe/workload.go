package spiffe

import (
	"context"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
)

// WorkloadIssuer issues the controller's own JWT-SVID, for calls without a
// ServiceAccount. It refuses calls with one, because every tenant would act as
// the controller. It is safe for concurrent use.
type WorkloadIssuer struct {
	svids  jwtsvid.Source
	id     spiffeid.ID
	config Config
}

var _ auth.SubjectIssuer = (*WorkloadIssuer)(nil)

// NewWorkloadIssuer returns a source of JWT-SVIDs for id, the controller's
// SPIFFE ID. svids is the Workload API: a *workloadapi.Client or a
// *workloadapi.JWTSource. The caller closes it. A conflict in the arguments is
// ErrMisconfigured.
func NewWorkloadIssuer(svids jwtsvid.Source, id spiffeid.ID, config Config) (*WorkloadIssuer, error) {
	if svids == nil || id.IsZero() {
		return nil, fail(auth.ErrMisconfigured, "pass both", "a Workload API and the controller's SPIFFE ID are required").
			About(optionWorkload)
	}
	if err := checkID(id); err != nil {
		return nil, err
	}
	if err := config.check(); err != nil {
		return nil, err
	}
	if config.ClusterID != "" {
		return nil, fail(auth.ErrMisconfigured, "leave it out", "the Workload API knows no clusters").About(optionCluster)
	}
	return &WorkloadIssuer{svids, id, config}, nil
}

// Key implements auth.SubjectIssuer.
func (*WorkloadIssuer) Key() string { return "spiffe workload" }

// Subject implements auth.SubjectIssuer. It returns Config.Issuer and the
// controller's SPIFFE ID.
func (s *WorkloadIssuer) Subject(sa *corev1.ServiceAccount, _ *auth.Options) (auth.SubjectClaims, error) {
	if sa != nil {
		return auth.SubjectClaims{},
			fail(auth.ErrMisconfigured, "use the issuer of the Broker API, or name no ServiceAccount",
				"the Workload API gives all tenants the identity of the controller").
				About(optionBroker, "auth.WithServiceAccount")
	}
	return auth.SubjectClaims{Issuer: s.config.Issuer, Subject: s.id.String()}, nil
}

// Token implements auth.SubjectIssuer. It returns the JWT-SVID and its expiry.
func (s *WorkloadIssuer) Token(ctx context.Context, sa *corev1.ServiceAccount, audiences []string, opts *auth.Options,
) (jwt string, expiry time.Time, err error) {
	if _, err := s.Subject(sa, opts); err != nil {
		return "", time.Time{}, err
	}
	if len(audiences) == 0 {
		return "", time.Time{}, noAudience()
	}
	params := jwtsvid.Params{Subject: s.id, Audience: audiences[0], ExtraAudiences: audiences[1:]}
	var svid *jwtsvid.SVID
	err = retry(ctx, func(ctx context.Context) (err error) {
		svid, err = s.svids.FetchJWTSVID(ctx, params)
		return err
	})
	switch {
	case err != nil:
		return "", time.Time{}, explained(err, "create a registration entry of this SPIFFE ID for the controller")
	case svid == nil:
		return "", time.Time{}, unusable("it holds no JWT-SVID")
	}
	if svid, err = read(svid.Marshal()); err != nil { // svids may be of any kind
		return "", time.Time{}, err
	}
	return s.config.accept(svid, s.id, audiences)
}
