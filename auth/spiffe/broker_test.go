package spiffe_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/exp/proto/spiffe/broker"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/auth/spiffe"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// Each tenant gets the session of its own SPIFFE ID, also in calls that run at
// once over one connection.
func TestTenantsGetTheirOwnSVID(t *testing.T) {
	w := newEnvironment(t)
	var calls sync.WaitGroup
	for n := range 40 {
		calls.Go(func() {
			tenant := []string{"tenant-a", "tenant-b"}[n%2]
			token, err := w.get(t.Context(), tenant, "app")
			if err != nil {
				t.Error(err)
			} else if got := w.subjectOf(token); got != idOf(tenant, "app").String() {
				t.Errorf("%s has the session of %q", tenant, got)
			}
		})
	}
	calls.Wait()
	if n := w.agent.Fetches(); n != 40 {
		t.Errorf("%d requests to the agent", n)
	}
}

// The request names namespace, name, UID, SPIFFE ID and audience.
func TestRequestNamesTheServiceAccount(t *testing.T) {
	conn := &answers{answer: func(int) (*broker.FetchJWTSVIDResponse, error) {
		return one(idOf("tenant-a", "app").String(), sign(t, nil)), nil
	}}
	source := newSource(t, conn, spiffe.Config{})
	token, expiry, err := source.Token(t.Context(), serviceAccount("tenant-a", "uid-1"), audience, &auth.Options{})
	if err != nil || token == "" || time.Until(expiry) > 5*time.Minute || time.Until(expiry) < 4*time.Minute {
		t.Fatalf("expires %s, %v", expiry, err)
	}
	request, reference := conn.requests[0], broker.KubernetesObjectReference{}
	if err := request.GetReference().GetReference().UnmarshalTo(&reference); err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintln(reference.GetType().GetPlural(), reference.GetType().GetGroup(), reference.GetKey().GetNamespace(),
		reference.GetKey().GetName(), reference.GetUid(), request.GetSpiffeId(), request.GetAudience())
	want := fmt.Sprintln("serviceaccounts", "core", "tenant-a", "app", "uid-1", idOf("tenant-a", "app"), audience)
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// No answer but the one that was asked for goes anywhere.
func TestAnswerIsChecked(t *testing.T) {
	const issuer = "https://oidc.example.org"
	id := idOf("tenant-a", "app").String()
	for name, tc := range map[string]struct {
		config spiffe.Config
		answer *broker.FetchJWTSVIDResponse
		reason provider.Reason // none: accepted
		want   []string
	}{
		"same":       {spiffe.Config{Issuer: issuer}, one(id, sign(t, nil)), "", nil},
		"any issuer": {spiffe.Config{}, one(id, sign(t, nil)), "", nil},
		"no answer":  {spiffe.Config{}, &broker.FetchJWTSVIDResponse{}, auth.ErrDenied, []string{"0 JWT-SVIDs", id}},
		"another issuer": {spiffe.Config{Issuer: "https://else.example"}, one(id, sign(t, nil)), auth.ErrDenied,
			[]string{`"https://else.example"`, issuer, "jwt_issuer", "spiffe.Config.Issuer"}},
		"no issuer": {spiffe.Config{}, one(id, sign(t, set("iss", nil))), auth.ErrMisconfigured, []string{"no issuer",
			"jwt_issuer", "SPIRE", "spiffe.Config.AllowNoIssuer"}},
		"no issuer, but one is expected": {spiffe.Config{Issuer: issuer}, one(id, sign(t, set("iss", nil))),
			auth.ErrMisconfigured,
			[]string{"no issuer", "jwt_issuer"}},
		"no issuer, allowed":     {spiffe.Config{AllowNoIssuer: true}, one(id, sign(t, set("iss", nil))), "", nil},
		"an issuer, none needed": {spiffe.Config{AllowNoIssuer: true}, one(id, sign(t, nil)), "", nil},
		"issuer is no text":      {spiffe.Config{}, one(id, sign(t, set("iss", 1))), auth.ErrUnavailable, nil},
		"two SVIDs": {spiffe.Config{}, &broker.FetchJWTSVIDResponse{Svids: append(one(id, sign(t, nil)).Svids, one(id,
			sign(t, nil)).Svids...)},
			auth.ErrDenied, []string{"2 JWT-SVIDs", "one registration entry"}},
		"another spiffe_id": {spiffe.Config{}, one(idOf("tenant-b", "app").String(), sign(t, nil)), auth.ErrDenied,
			[]string{`for "spiffe://example.org/ns/tenant-b/sa/app", not for "` + id}},
		"no spiffe_id": {spiffe.Config{}, one("", sign(t, nil)), auth.ErrDenied, []string{`for "", not for`}},
		"another sub": {spiffe.Config{}, one(id, sign(t, set("sub", idOf("tenant-b", "app").String()))), auth.ErrDenied,
			[]string{`for "spiffe://example.org/ns/tenant-b/sa/app", not for "` + id}},
		"another trust domain": {spiffe.Config{}, one(id, sign(t, set("sub", "spiffe://evil.example/ns/tenant-a/sa/app"))),
			auth.ErrDenied,
			[]string{`"spiffe://evil.example/ns/tenant-a/sa/app"`}},
		"sub in capitals": {spiffe.Config{}, one(id, sign(t, set("sub", "spiffe://EXAMPLE.org/ns/tenant-a/sa/app"))),
			auth.ErrUnavailable, []string{"subject"}},
		"sub is no SPIFFE ID": {spiffe.Config{}, one(id, sign(t, set("sub", "system:serviceaccount:tenant-a:app"))),
			auth.ErrUnavailable,
			[]string{"subject"}},
		"another audience": {spiffe.Config{}, one(id, sign(t, set("aud", "vault"))), auth.ErrDenied, []string{`["vault"]`,
			aws.DefaultAudience}},
		"a further audience": {spiffe.Config{}, one(id, sign(t, set("aud", []string{aws.DefaultAudience, "vault"}))),
			auth.ErrDenied, []string{"vault"}},
		"no audience": {spiffe.Config{}, one(id, sign(t, set("aud", nil))), auth.ErrDenied, []string{"[]"}},
		"expired": {spiffe.Config{}, one(id, sign(t, set("exp", time.Now().Add(-time.Hour).Unix()))),
			auth.ErrUnavailable, []string{"expired"}},
		"no expiry": {spiffe.Config{}, one(id, sign(t, set("exp", nil))), auth.ErrUnavailable, []string{"exp"}},
		"no JWT":    {spiffe.Config{}, one(id, "secret"), auth.ErrUnavailable, []string{"cannot be used"}},
		"too large": {spiffe.Config{}, one(id, sign(t, set("x", strings.Repeat("x", 16<<10)))),
			auth.ErrUnavailable, []string{"larger than"}},
	} {
		t.Run(name, func(t *testing.T) {
			conn := &answers{answer: func(int) (*broker.FetchJWTSVIDResponse, error) { return tc.answer, nil }}
			token, expiry, err := newSource(t, conn, tc.config).Token(t.Context(), serviceAccount("tenant-a", "uid-1"),
				audience, &auth.Options{})
			if tc.reason == "" {
				if err != nil || token != tc.answer.GetSvids()[0].GetSvid() || !expiry.After(time.Now()) {
					t.Errorf("expires %s, %v", expiry, err)
				}
				return
			}
			testenv.CheckError(t, err, tc.reason, append(tc.want, "get JWT-SVID")...)
			if token != "" || strings.Contains(err.Error(), "secret") || len(conn.requests) != 1 {
				t.Errorf("got a token of %d bytes after %d requests, %v", len(token), len(conn.requests), err)
			}
		})
	}
}

// The status of the agent decides about reason and retries. Retries take less
// than two seconds.
func TestStatusOfTheAgent(t *testing.T) {
	for code, tc := range map[codes.Code]struct {
		reason   provider.Reason
		requests int
		want     string
	}{
		codes.Unavailable:        {auth.ErrUnavailable, 4, "is ready"},
		codes.Unauthenticated:    {auth.ErrDenied, 1, "registration entry"},
		codes.PermissionDenied:   {auth.ErrDenied, 1, "registration entry"},
		codes.NotFound:           {auth.ErrDenied, 2, "the cluster of the ServiceAccount"},
		codes.InvalidArgument:    {auth.ErrMisconfigured, 1, "enable this API"},
		codes.FailedPrecondition: {auth.ErrMisconfigured, 1, "enable this API"},
		codes.Unimplemented:      {auth.ErrMisconfigured, 1, "enable this API"},
		codes.ResourceExhausted:  {auth.ErrUnavailable, 1, "is ready"},
		codes.DeadlineExceeded:   {auth.ErrUnavailable, 1, "is ready"},
		codes.Internal:           {auth.ErrUnavailable, 1, "is ready"},
		codes.Unknown:            {auth.ErrUnavailable, 1, "is ready"},
	} {
		t.Run(code.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn := &answers{answer: func(int) (*broker.FetchJWTSVIDResponse, error) {
					return nil, status.Error(code, "no: "+sign(t, nil)+"\n"+strings.Repeat("x", 1000))
				}}
				start, opts := time.Now(), &auth.Options{}
				_, _, err := newSource(t, conn, spiffe.Config{}).Token(t.Context(), serviceAccount("tenant-a", "uid-1"), audience,
					opts)
				testenv.CheckError(t, err, tc.reason, "the SPIFFE agent: no:", "("+code.String()+")", tc.want)
				if status.Code(errors.Unwrap(err)) != code || len(conn.requests) != tc.requests || len(err.Error()) > 700 {
					t.Errorf("%d requests, %v", len(conn.requests), err)
				}
				if d := time.Since(start); d > 2*time.Second {
					t.Errorf("took %s", d)
				}
			})
		})
	}
}

// A retry waits no longer than its context.
func TestRetryEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	conn := &answers{answer: func(int) (*broker.FetchJWTSVIDResponse, error) {
		cancel()
		return nil, status.Error(codes.Unavailable, "starting")
	}}
	source, sa := newSource(t, conn, spiffe.Config{}), serviceAccount("tenant-a", "uid-1")
	_, _, err := source.Token(ctx, sa, audience, &auth.Options{})
	if testenv.CheckError(t, err, auth.ErrUnavailable); !errors.Is(err, context.Canceled) || len(conn.requests) != 1 {
		t.Errorf("%d requests, %v", len(conn.requests), err)
	}
}

// reader is the cluster as it is when the source reads the ServiceAccount
// again.
type reader struct {
	auth.KubernetesClient
	sa    *corev1.ServiceAccount // nil: deleted
	err   error
	reads int
}

func (r *reader) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	r.reads++
	switch {
	case r.err != nil:
		return r.err
	case r.sa == nil:
		return apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccounts"}, key.Name)
	}
	*into.(*corev1.ServiceAccount) = *r.sa //nolint:forcetypeassert // the only kind
	return nil
}

// An agent that does not know the ServiceAccount is asked again if the
// ServiceAccount exists, once.
func TestAgentDoesNotKnowTheServiceAccount(t *testing.T) {
	known := func(n, from int) (*broker.FetchJWTSVIDResponse, error) {
		if n < from {
			return nil, status.Error(codes.NotFound, "unknown")
		}
		return one(idOf("tenant-a", "app").String(), sign(t, nil)), nil
	}
	for name, tc := range map[string]struct {
		cluster  reader
		from     int // the request from which the agent knows it
		requests int
		reason   provider.Reason
		cause    provider.Cause
		want     string
	}{
		"its cache lags behind": {reader{sa: serviceAccount("tenant-a", "uid-1")}, 2, 2, "", "", ""},
		"it never learns":       {reader{sa: serviceAccount("tenant-a", "uid-1")}, 9, 2, auth.ErrDenied, "", "NotFound"},
		"deleted":               {reader{}, 2, 1, auth.ErrDenied, provider.CauseServiceAccountNotFound, "no longer exists"},
		"re-created": {reader{sa: serviceAccount("tenant-a", "uid-2")}, 2, 1, auth.ErrUnavailable, "",
			"re-created"},
		"cannot be read": {reader{err: errors.New("refused by secret")}, 2, 1, auth.ErrUnavailable, "",
			"cannot be read again"},
	} {
		t.Run(name, func(t *testing.T) {
			conn := &answers{answer: func(n int) (*broker.FetchJWTSVIDResponse, error) { return known(n, tc.from) }}
			opts := &auth.Options{}
			opts.Client = &tc.cluster
			source := newSource(t, conn, spiffe.Config{})
			_, _, err := source.Token(t.Context(), serviceAccount("tenant-a", "uid-1"), audience, opts)
			if len(conn.requests) != tc.requests || tc.cluster.reads != 1 {
				t.Errorf("%d requests, %d reads", len(conn.requests), tc.cluster.reads)
			}
			if tc.reason == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			testenv.CheckError(t, err, tc.reason, tc.want)
			var known *auth.Error
			if !errors.As(err, &known) || known.Cause != tc.cause || strings.Contains(err.Error(), "secret") {
				t.Errorf("cause %q: %v", known.Cause, err)
			}
		})
	}
}

// deletedMeanwhile deletes the ServiceAccount after its first read.
type deletedMeanwhile struct {
	*environment
	auth.KubernetesClient
}

func (d deletedMeanwhile) Get(ctx context.Context, key client.ObjectKey, into client.Object,
	o ...client.GetOption) error {
	err := d.Client.Get(ctx, key, into, o...)
	if err == nil {
		err = d.Client.Delete(ctx, testenv.ServiceAccount(key.Namespace, key.Name))
	}
	return err
}

// A ServiceAccount that is deleted during the call gets nothing.
func TestServiceAccountIsDeletedDuringTheCall(t *testing.T) {
	w := newEnvironment(t)
	_, err := w.get(t.Context(), "tenant-a", "app",
		auth.WithServiceAccount(key("tenant-a", "app"), deletedMeanwhile{w, w.Client}))
	testenv.CheckError(t, err, auth.ErrDenied, "no longer exists")
	if w.Cloud.Calls("", "") != 0 {
		t.Error("AWS was asked")
	}
}

// Credentials leave the cache when their JWT-SVID expires. A removed
// registration entry then ends access.
func TestCredentialExpiresWithItsSVID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTrust(t)
		defer w.close()
		cached := testenv.Cached(t, "tenant-a")
		get := func() error { return w.call(t.Context(), "tenant-a", cached) }
		if err := get(); err != nil {
			t.Fatal(err)
		}
		w.agent.Unregister(key("tenant-a", "app"))
		time.Sleep(3 * time.Minute)
		if err := get(); err != nil {
			t.Errorf("before the SVID expires: %v", err)
		}
		time.Sleep(2 * time.Minute)
		testenv.CheckError(t, get(), auth.ErrDenied, "no identity issued", "PermissionDenied", "registration entry")
	})
}

// close ends what runs in a bubble, before the test ends.
func (w *environment) close() {
	_ = w.conn.Close()
	w.agent.Close()
}

// A request that the agent never answers ends by itself, and with its context.
func TestHangingRequestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTrust(t)
		defer w.close()
		w.agent.SetBefore(func(ctx context.Context, _ client.ObjectKey) error { <-ctx.Done(); return ctx.Err() })
		start := time.Now()
		err := w.call(t.Context(), "tenant-a")
		testenv.CheckError(t, err, auth.ErrUnavailable, "DeadlineExceeded")
		if d := time.Since(start); d != 30*time.Second {
			t.Errorf("took %s", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err = w.call(ctx, "tenant-a"); !errors.Is(err,
			context.DeadlineExceeded) || time.Since(start) != 31*time.Second {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
	})
}

// The controller's function decides, and the Policy sees its answer on hits
// too.
func TestControllerStatesTheID(t *testing.T) {
	for name, tc := range map[string]struct {
		id     spiffe.IDFunc
		reason provider.Reason
		want   string
	}{
		"refuses": {func(*corev1.ServiceAccount) (spiffeid.ID, error) { return spiffeid.ID{}, errors.New("not on the list") },
			auth.ErrDenied, "not on the list"},
		"with a reason": {func(*corev1.ServiceAccount) (spiffeid.ID, error) {
			return spiffeid.ID{}, &auth.Error{Reason: auth.ErrMisconfigured, Message: "not labeled"}
		}, auth.ErrMisconfigured, "not labeled"},
		"states none": {func(*corev1.ServiceAccount) (spiffeid.ID, error) { return spiffeid.ID{}, nil }, auth.ErrDenied,
			"states no SPIFFE ID"},
		"a trust domain": {func(*corev1.ServiceAccount) (spiffeid.ID, error) { return trustDomain.ID(), nil },
			auth.ErrMisconfigured, "is a trust domain"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			source, err := spiffe.NewBrokerIssuer(w.conn, tc.id, spiffe.Config{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = w.get(t.Context(), "tenant-a", "app", auth.WithSubjectIssuer(source))
			testenv.CheckError(t, err, tc.reason, tc.want)
			if w.agent.Fetches() != 0 {
				t.Error("the agent was asked")
			}
		})
	}
	w, seen := newEnvironment(t), 0
	policy := auth.WithPolicy(auth.Policy{Authorize: func(_ context.Context, r auth.AuthorizeRequest) error {
		if seen++; r.Subject != idOf("tenant-a", "app").String() {
			t.Errorf("the Policy saw %q", r.Subject)
		}
		return nil
	}})
	cached := testenv.Cached(t, "tenant-a")
	for range 2 {
		if _, err := w.get(t.Context(), "tenant-a", "app", cached, policy); err != nil {
			t.Fatal(err)
		}
	}
	if seen != 2 || w.agent.Fetches() != 1 {
		t.Errorf("%d decisions, %d requests", seen, w.agent.Fetches())
	}
}

// What the core never passes is refused too.
func TestBrokerRefusesIncompleteCalls(t *testing.T) {
	w := newEnvironment(t)
	for name, tc := range map[string]struct {
		sa        *corev1.ServiceAccount
		audiences []string
		want      string
	}{
		"no ServiceAccount": {nil, audience, "ServiceAccounts alone"},
		"no UID":            {serviceAccount("tenant-a", ""), audience, "UID"},
		"no audience":       {serviceAccount("tenant-a", "uid-1"), nil, "audience"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := w.source.Token(t.Context(), tc.sa, tc.audiences, &auth.Options{})
			testenv.CheckError(t, err, auth.ErrMisconfigured, tc.want)
		})
	}
	if w.agent.Fetches() != 0 {
		t.Error("the agent was asked")
	}
	_, err := auth.GetAccessToken(t.Context(), &aws.Provider{}, auth.WithSubjectIssuer(w.source),
		auth.WithControllerAnnotations(map[string]string{aws.RoleARNAnnotation: role("tenant-a")}),
		auth.WithSTSRegion("eu-central-1"))
	testenv.CheckError(t, err, auth.ErrMisconfigured, "spiffe.NewWorkloadIssuer")
}

func TestSourcesAreChecked(t *testing.T) {
	w := newEnvironment(t)
	conflict := spiffe.Config{Issuer: "https://oidc.example.org", AllowNoIssuer: true}
	for name, make := range map[string]func() error{
		"broker without a connection": func() error {
			return second(spiffe.NewBrokerIssuer(nil, spiffe.IDs(trustDomain),
				spiffe.Config{}))
		},
		"broker without a function": func() error { return second(spiffe.NewBrokerIssuer(w.conn, nil, spiffe.Config{})) },
		"broker with a conflict": func() error {
			return second(spiffe.NewBrokerIssuer(w.conn, spiffe.IDs(trustDomain),
				conflict))
		},
		"workload with a cluster": func() error {
			return second(spiffe.NewWorkloadIssuer(fixed{}, controllerID, spiffe.Config{ClusterID: "one"}))
		},
		"workload without a client": func() error {
			return second(spiffe.NewWorkloadIssuer(nil, controllerID,
				spiffe.Config{}))
		},
		"workload without an ID": func() error {
			return second(spiffe.NewWorkloadIssuer(fixed{}, spiffeid.ID{},
				spiffe.Config{}))
		},
		"workload with a trust domain": func() error {
			return second(spiffe.NewWorkloadIssuer(fixed{}, trustDomain.ID(), spiffe.Config{}))
		},
		"workload with a conflict": func() error { return second(spiffe.NewWorkloadIssuer(fixed{}, controllerID, conflict)) },
	} {
		t.Run(name, func(t *testing.T) { testenv.CheckError(t, make(), auth.ErrMisconfigured) })
	}
}

func second[T any](_ T, err error) error { return err }

// The API server of a tenant's cluster shows any namespace, name and UID. The
// agent would take them for its own cluster's.
func TestSourcesBelongToOneCluster(t *testing.T) {
	w := newTrust(t)
	own := newSource(t, w.conn, spiffe.Config{Issuer: w.Issuer.URL(), ClusterID: "one"})
	for name, tc := range map[string]struct {
		source  *spiffe.BrokerIssuer
		cluster string
		want    string // of the refusal
	}{
		"its cluster":                  {own, "one", ""},
		"no cluster":                   {w.source, "", ""},
		"another cluster":              {own, "two", `the call is for the cluster "two", the source belongs to "one"`},
		"a call without a cluster":     {own, "", `the cluster ""`},
		"a source without a cluster":   {w.source, "two", "(spiffe.Config.ClusterID, auth.WithClusterID)"},
		"a prefix of the cluster's ID": {own, "on", `"on"`},
	} {
		t.Run(name, func(t *testing.T) {
			before := w.agent.Fetches()
			err := w.call(t.Context(), "tenant-a", auth.WithSubjectIssuer(tc.source), auth.WithClusterID(tc.cluster))
			if tc.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			testenv.CheckError(t, err, auth.ErrMisconfigured, tc.want)
			if n := w.agent.Fetches() - before; n != 0 {
				t.Errorf("the agent was asked %d times", n)
			}
		})
	}
	if own.Key() == w.source.Key() {
		t.Error("sources of two clusters have one key")
	}
}
