package spiffe_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/auth/spiffe"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// workload returns a source of the controller, which AWS trusts for the role
// "controller".
func (w *environment) workload(t *testing.T, id spiffeid.ID, config spiffe.Config) *spiffe.WorkloadIssuer {
	t.Helper()
	api, err := w.agent.Workload()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	w.Cloud.AWS().SetRole(role("controller"), cloudtest.Trust{Issuer: w.Issuer.URL(),
		Subjects: []string{controllerID.String()}})
	source, err := spiffe.NewWorkloadIssuer(api, id, config)
	if err != nil {
		t.Fatal(err)
	}
	return source
}

func (w *environment) own(ctx context.Context, source auth.SubjectIssuer) (*aws.Token, error) {
	token, err := auth.GetAccessToken(ctx, &aws.Provider{}, auth.WithSubjectIssuer(source),
		auth.WithControllerAnnotations(map[string]string{aws.RoleARNAnnotation: role("controller")}),
		auth.WithSTSRegion("eu-central-1"), auth.WithHTTPClient(w.Cloud.Client()))
	if err != nil {
		return nil, err
	}
	return aws.FromToken(token)
}

// The controller's own SVID is the subject of calls without a ServiceAccount.
func TestControllerGetsItsSVID(t *testing.T) {
	w := newEnvironment(t)
	source := w.workload(t, controllerID, spiffe.Config{Issuer: w.Issuer.URL()})
	token, err := w.own(t.Context(), source)
	if err != nil {
		t.Fatal(err)
	}
	if got := w.subjectOf(token); got != controllerID.String() {
		t.Errorf("the subject is %q", got)
	}
	_, expiry, err := source.Token(t.Context(), nil, audience, &auth.Options{})
	if err != nil || time.Until(expiry) > 5*time.Minute || time.Until(expiry) < 4*time.Minute {
		t.Errorf("expires %s, %v", expiry, err)
	}
}

// No tenant acts as the controller.
func TestTenantGetsNoSVIDOfTheController(t *testing.T) {
	w := newEnvironment(t)
	source := w.workload(t, controllerID, spiffe.Config{})
	_, err := w.get(t.Context(), "tenant-a", "app", auth.WithSubjectIssuer(source))
	testenv.CheckError(t, err, auth.ErrMisconfigured, "the identity of the controller", "spiffe.NewBrokerIssuer")
	_, _, err = source.Token(t.Context(), serviceAccount("tenant-a", "uid-1"), audience, &auth.Options{})
	testenv.CheckError(t, err, auth.ErrMisconfigured)
	if w.agent.Fetches() != 0 {
		t.Error("the agent was asked")
	}
}

// What the agent returns is compared with what the controller states.
func TestControllersSVIDIsChecked(t *testing.T) {
	for name, tc := range map[string]struct {
		config spiffe.Config
		claims func(map[string]any)
		reason provider.Reason
		want   string
	}{
		"subject": {spiffe.Config{}, set("sub", idOf("tenant-a", "app").String()), auth.ErrDenied,
			`not for "spiffe://example.org/ns/system`},
		"trust domain": {spiffe.Config{}, set("sub", "spiffe://evil.example/ns/system/sa/controller"), auth.ErrDenied,
			"evil.example"},
		"issuer":    {spiffe.Config{Issuer: "https://else.example"}, nil, auth.ErrDenied, "jwt_issuer"},
		"no issuer": {spiffe.Config{}, set("iss", nil), auth.ErrMisconfigured, "jwt_issuer"},
		"audience":  {spiffe.Config{}, set("aud", "vault"), auth.ErrUnavailable, "audience"}, // refused by go-spiffe
		"more audiences": {spiffe.Config{}, set("aud", []string{aws.DefaultAudience, "vault"}), auth.ErrDenied,
			"vault"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			w.agent.SetClaims(tc.claims)
			_, err := w.own(t.Context(), w.workload(t, controllerID, tc.config))
			testenv.CheckError(t, err, tc.reason, tc.want)
			if w.Cloud.Calls("", "") != 0 {
				t.Error("AWS was asked")
			}
		})
	}
}

// The agent's refusals are explained as those of the Broker API.
func TestWorkloadAPIRefuses(t *testing.T) {
	w := newEnvironment(t)
	_, err := w.own(t.Context(), w.workload(t, idOf("system", "else"), spiffe.Config{}))
	testenv.CheckError(t, err, auth.ErrDenied, "no identity issued", "registration entry", "for the controller")
	if w.agent.Fetches() != 1 {
		t.Errorf("%d requests", w.agent.Fetches())
	}
}

// fixed is a Workload API of any kind.
type fixed struct {
	svid *jwtsvid.SVID
	err  error
}

func (f fixed) FetchJWTSVID(context.Context, jwtsvid.Params) (*jwtsvid.SVID, error) {
	return f.svid, f.err
}

// A Workload API of another kind is not trusted to have parsed the token.
func TestWorkloadAPIOfAnotherKind(t *testing.T) {
	parsed, err := jwtsvid.ParseInsecure(sign(t, nil), audience)
	if err != nil {
		t.Fatal(err)
	}
	parsed.ID = controllerID // but the token is for tenant-a
	for name, tc := range map[string]struct {
		api    fixed
		reason provider.Reason
	}{
		"no SVID":              {fixed{}, auth.ErrUnavailable},
		"an empty SVID":        {fixed{svid: &jwtsvid.SVID{ID: controllerID}}, auth.ErrUnavailable},
		"another in the token": {fixed{svid: parsed}, auth.ErrDenied},
		"an error":             {fixed{err: errors.New("closed: " + sign(t, nil))}, auth.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			source, err := spiffe.NewWorkloadIssuer(tc.api, controllerID, spiffe.Config{})
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = source.Token(t.Context(), nil, audience, &auth.Options{})
			testenv.CheckError(t, err, tc.reason)
		})
	}
}

// An agent that starts is asked again.
func TestWorkloadAPIIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTrust(t)
		defer w.close()
		api, err := w.agent.Workload()
		if err != nil {
			t.Fatal(err)
		}
		defer api.Close() //nolint:errcheck // in memory
		source, err := spiffe.NewWorkloadIssuer(api, controllerID, spiffe.Config{})
		if err != nil {
			t.Fatal(err)
		}
		w.agent.SetBefore(func(context.Context, client.ObjectKey) error {
			if w.agent.Fetches() < 3 {
				return status.Error(codes.Unavailable, "starting")
			}
			return nil
		})
		if _, _, err := source.Token(t.Context(), nil, audience, &auth.Options{}); err != nil || w.agent.Fetches() != 3 {
			t.Errorf("%d requests, %v", w.agent.Fetches(), err)
		}
	})
}
