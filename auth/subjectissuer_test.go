package auth_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/testing/spantest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

const trustDomain = "https://trust.example"

// subjects is a SubjectIssuer whose subject is named by the annotation
// "subject", with hooks for what can go wrong.
type subjects struct {
	key    string
	asked  atomic.Int64
	bound  time.Duration // none if 0
	claims map[string]any
	token  func(ctx context.Context, subject, jwt string) (string, error)
}

func (s *subjects) Key() string { return s.key }

func (s *subjects) Subject(sa *corev1.ServiceAccount, _ *auth.Options) (auth.SubjectClaims, error) {
	if sa == nil {
		return auth.SubjectClaims{Issuer: trustDomain, Subject: "controller"}, nil
	}
	if sa.Annotations["subject"] == "malformed" {
		return auth.SubjectClaims{},
			&auth.Error{Reason: auth.ErrMisconfigured, Message: `the annotation "subject" is malformed`}
	}
	return auth.SubjectClaims{Issuer: trustDomain, Subject: sa.Annotations["subject"], Identity: sa.Annotations["first"]},
		nil
}

func (s *subjects) Token(ctx context.Context, sa *corev1.ServiceAccount, audiences []string, opts *auth.Options,
) (jwt string, expiry time.Time, err error) {
	s.asked.Add(1)
	stated, err := s.Subject(sa, opts)
	if err != nil {
		return "", time.Time{}, err
	}
	claims := map[string]any{"iss": stated.Issuer, "sub": stated.Subject, "aud": audiences,
		"exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(claims, s.claims)
	jwt = unsigned(claims)
	if s.bound != 0 {
		expiry = time.Now().Add(s.bound)
	}
	if s.token != nil {
		jwt, err = s.token(ctx, stated.Subject, jwt)
	}
	return jwt, expiry, err
}

func only(name string, value any) map[string]any { return map[string]any{name: value} }

// sourced returns a cluster with one ServiceAccount, and the options of a call
// for it.
func sourced(t *testing.T, source auth.SubjectIssuer) (*cluster, client.ObjectKey, []auth.Option) {
	t.Helper()
	k8s := newCluster()
	key := k8s.create("tenant-a", "app", map[string]string{"identity": "one", "subject": "a"})
	return k8s, key, []auth.Option{auth.WithSubjectIssuer(source), auth.WithServiceAccount(key, k8s),
		testenv.Cached(t, "tenant-a")}
}

// The source takes the API server's place on a miss. The ServiceAccount is read
// on each call, and deleting it ends access.
func TestSubjectIssuerIssuesTheToken(t *testing.T) {
	source, provider := &subjects{key: "s"}, &exchange{}
	k8s, key, opts := sourced(t, source)
	first := mustGet(t, provider, opts...)
	again := mustGet(t, provider, opts...)
	if again != first || first.subject != "tenant-a/app" || first.identity != "one" {
		t.Errorf("got %+v and %+v", first, again)
	}
	asked, requests, reads := source.asked.Load(), k8s.requests.Load(), k8s.reads.Load()
	if asked != 1 || requests != 0 || reads != 2 {
		t.Errorf("%d tokens of the source, %d TokenRequests and %d reads, want 1, 0 and 2", asked, requests, reads)
	}
	k8s.remove(key)
	_, err := auth.GetAccessToken(t.Context(), provider, opts...)
	testenv.CheckError(t, err, auth.ErrMisconfigured, "not found")
	if n := source.asked.Load() + provider.controller.Load(); n != 1 {
		t.Errorf("%d requests after the ServiceAccount was deleted", n-1)
	}
}

// The error names both options, and nothing is read.
func TestSubjectIssuerExcludes(t *testing.T) {
	for name, tc := range map[string]struct {
		option auth.Option
		names  string
	}{
		"token in hand": {auth.WithSubjectToken(auth.NewStaticTokenSource("x"), corev1.ServiceAccount{}),
			"auth.WithSubjectToken"},
		"bound object": {auth.WithBoundObject(authenticationv1.BoundObjectReference{Kind: "Pod"}),
			"auth.WithBoundObject"},
		"lifetime": {auth.WithTokenLifetime(time.Hour), "auth.WithTokenLifetime"},
	} {
		t.Run(name, func(t *testing.T) {
			source := &subjects{key: "s"}
			k8s, _, opts := sourced(t, source)
			_, err := auth.GetAccessToken(t.Context(), &exchange{}, append(opts, tc.option)...)
			testenv.CheckError(t, err, auth.ErrMisconfigured)
			var known *auth.Error
			requests := k8s.reads.Load() + source.asked.Load()
			if !errors.As(err, &known) || known.Option != "auth.WithSubjectIssuer, "+tc.names || requests != 0 {
				t.Errorf("got %v, which names %q", err, known.Option)
			}
		})
	}
}

// What a source returns is checked before it goes anywhere.
func TestSubjectIssuerIsChecked(t *testing.T) {
	opaque := func(jwt string) func(context.Context, string, string) (string, error) {
		return func(context.Context, string, string) (string, error) { return jwt, nil }
	}
	for name, tc := range map[string]struct {
		source *subjects
		reason provider.Reason
		want   []string
	}{
		"another issuer": {&subjects{claims: only("iss", "https://evil.example")}, auth.ErrDenied,
			[]string{`"https://evil.example"`, `"` + trustDomain + `"`}},
		"another subject": {&subjects{claims: only("sub", "b")}, auth.ErrDenied, []string{`for "b", not for "a"`}},
		"no subject":      {&subjects{claims: only("sub", "")}, auth.ErrDenied, []string{`not for "a"`}},
		"the API server's sub": {&subjects{claims: only("sub", "system:serviceaccount:tenant-a:app")}, auth.ErrDenied,
			[]string{`not for "a"`}},
		"another audience": {&subjects{claims: only("aud", "evil")}, auth.ErrDenied,
			[]string{`["evil"] instead of ["exchange"]`}},
		"one more audience": {&subjects{claims: only("aud", []string{"exchange", "evil"})}, auth.ErrDenied,
			[]string{`"evil"`}},
		"expired":           {&subjects{claims: only("exp", 1)}, auth.ErrUnavailable, []string{"expired"}},
		"no expiry":         {&subjects{claims: only("exp", nil)}, auth.ErrUnavailable, []string{"no usable expiry"}},
		"bound in the past": {&subjects{bound: -time.Second}, auth.ErrUnavailable, []string{"expired"}},
		"empty":             {&subjects{token: opaque("")}, auth.ErrMisconfigured, []string{"returned none"}},
		"two lines": {&subjects{token: func(_ context.Context, _, jwt string) (string, error) {
			return jwt + "\r\nX-Evil: 1", nil
		}}, auth.ErrMisconfigured, []string{"characters that no JWT has"}},
		"opaque": {&subjects{token: opaque(canary)}, auth.ErrMisconfigured, []string{"not a JWT"}},
		"its own error": {&subjects{token: func(context.Context, string, string) (string, error) {
			return "", &auth.Error{Provider: "agent", Reason: auth.ErrThrottled, Message: "slow down"}
		}}, auth.ErrThrottled, []string{"agent", "slow down"}},
		"an error with its token": {&subjects{token: func(_ context.Context, _, jwt string) (string, error) {
			return jwt, errors.New("refused " + jwt)
		}}, auth.ErrUnavailable, []string{"get subject token", "refused"}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.source.key = "s"
			provider := &exchange{}
			_, _, opts := sourced(t, tc.source)
			_, err := auth.GetAccessToken(t.Context(), provider, opts...)
			testenv.CheckError(t, err, tc.reason, append(tc.want, `ServiceAccount "tenant-a/app"`)...)
			if n := provider.mints.Load() + provider.controller.Load(); n != 0 {
				t.Errorf("the provider was asked %d times", n)
			}
		})
	}
}

// Errors and spans of a source hold neither its token nor what breaks a line.
func TestSubjectIssuerHidesItsToken(t *testing.T) {
	for name, fail := range map[string]func(jwt string) error{
		"foreign": func(jwt string) error { return errors.New("bad token " + jwt + "\x1b[31m") },
		"its own": func(jwt string) error {
			return &auth.Error{Reason: auth.ErrDenied, Message: "bad token " + jwt + "\x1b[31m"}
		},
		"its remedy": func(jwt string) error {
			return &auth.Error{Reason: auth.ErrDenied, Message: "bad token", Remedy: "drop " + jwt}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var token string
			source, spans := &subjects{key: "s", token: func(_ context.Context, _, jwt string) (string, error) {
				token = jwt
				return jwt, fail(jwt)
			}}, &spantest.Recorder{}
			_, _, opts := sourced(t, source)
			_, err := auth.GetAccessToken(t.Context(), &exchange{}, append(opts, auth.WithTracerProvider(spans))...)
			if err == nil || !strings.Contains(err.Error(), "bad token") {
				t.Fatal(err)
			}
			for _, text := range append(spans.Ended(), err.Error()) {
				if strings.Contains(text, token) || strings.Contains(text, "\x1b") {
					t.Errorf("it shows: %q", text)
				}
			}
		})
	}
}

// A bound beyond the expiry of the token counts as the expiry.
func TestSubjectIssuerBoundsByTheToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &subjects{key: "s", bound: 50 * time.Minute, claims: only("exp", time.Now().Add(2*time.Minute).Unix())}
		k8s := newCluster()
		key := k8s.create("tenant-a", "app", map[string]string{"subject": "a"})
		tokens := testenv.Cache(t)
		opts := []auth.Option{auth.WithSubjectIssuer(source), auth.WithServiceAccount(key, k8s),
			testenv.WithCache(tokens, "tenant-a")}
		mustGet(t, &exchange{}, opts...)
		time.Sleep(20 * time.Minute)
		_, err := auth.GetAccessToken(t.Context(), &exchange{}, opts...)
		testenv.CheckError(t, err, auth.ErrUnavailable, "expired")
	})
}

func TestSubjectIdentityIsInTheKey(t *testing.T) {
	var seen []string
	policy := auth.WithPolicy(auth.Policy{Authorize: func(_ context.Context, r auth.AuthorizeRequest) error {
		seen = append(seen, r.SubjectIdentity)
		return nil
	}})
	source := &subjects{key: "s"}
	_, _, opts := sourced(t, source)
	for _, first := range []string{"one", "two", "one"} {
		mustGet(t, &exchange{}, append(opts, policy, auth.WithAnnotations(map[string]string{"first": first}))...)
	}
	if n := source.asked.Load(); n != 2 || !slices.Equal(seen, []string{"one", "two", "one"}) {
		t.Errorf("%d tokens; the Policy saw %q", n, seen)
	}
}

// The source itself is checked on each call, before any request.
func TestSubjectIssuerStatesASubject(t *testing.T) {
	for name, tc := range map[string]struct {
		source      auth.SubjectIssuer
		annotations map[string]string
		want        string
	}{
		"no key": {&subjects{}, nil, "has no key, or states no subject"},
		"no subject": {&subjects{key: "s"}, map[string]string{"identity": "one"},
			"has no key, or states no subject"},
		"its error":   {&subjects{key: "s"}, map[string]string{"subject": "malformed"}, `"subject" is malformed`},
		"nil pointer": {(*subjects)(nil), nil, "nil pointer"},
	} {
		t.Run(name, func(t *testing.T) {
			k8s, key, opts := sourced(t, tc.source)
			if tc.annotations != nil {
				k8s.annotate(key, tc.annotations)
			}
			provider := &exchange{}
			_, err := auth.GetAccessToken(t.Context(), provider, opts...)
			testenv.CheckError(t, err, auth.ErrMisconfigured, tc.want)
			if n := provider.mints.Load(); n != 0 {
				t.Errorf("%d exchanges", n)
			}
		})
	}
}

// The Policy sees the subject and decides before the source is asked, on cache
// hits too. The rest of the Policy applies as usual.
func TestSubjectIssuerUnderThePolicy(t *testing.T) {
	source := &subjects{key: "s"}
	_, _, opts := sourced(t, source)
	mustGet(t, &exchange{}, opts...)
	var seen auth.AuthorizeRequest
	refusing := auth.WithPolicy(auth.Policy{Authorize: func(_ context.Context, r auth.AuthorizeRequest) error {
		seen = r
		return errors.New("not this subject")
	}})
	_, err := auth.GetAccessToken(t.Context(), &exchange{}, append(opts, refusing)...)
	testenv.CheckError(t, err, auth.ErrDenied, "not this subject")
	if seen.Subject != "a" || seen.Identity != "one" || source.asked.Load() != 1 {
		t.Errorf("the Policy saw %+v; the source was asked %d times", seen, source.asked.Load())
	}
	for name, tc := range map[string]struct {
		option auth.Option
		want   string
	}{
		"audience of the API server": {auth.WithPolicy(auth.Policy{APIServerAudiences: []string{"exchange"}}),
			"the API server's own"},
		"audience of the caller": {auth.WithAudiences("evil"), `does not list the audience "evil"`},
		"another namespace":      {testenv.Owner("tenant-b"), `lies in namespace "tenant-a"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := auth.GetAccessToken(t.Context(), &exchange{}, append(opts, tc.option)...)
			testenv.CheckError(t, err, auth.ErrDenied, tc.want)
		})
	}
}

// Without a ServiceAccount, the controller's own identity is that of the source
// with the controller's annotations. A tenant's annotations never reach it.
func TestSubjectIssuerOfTheController(t *testing.T) {
	source, provider := &subjects{key: "s", bound: time.Hour}, &exchange{}
	own := auth.WithControllerAnnotations(map[string]string{"identity": "controller's"})
	opts := []auth.Option{auth.WithSubjectIssuer(source), own, testenv.Cached(t, "tenant-a")}
	first := mustGet(t, provider, opts...)
	again := mustGet(t, provider, opts...)
	if again != first || first.subject != "/" || first.identity != "controller's" {
		t.Errorf("got %+v and %+v", first, again)
	}
	if source.asked.Load() != 1 || provider.controller.Load() != 0 {
		t.Errorf("the source was asked %d times, the environment %d times", source.asked.Load(),
			provider.controller.Load())
	}
	tenants := auth.WithAnnotations(map[string]string{"identity": "chosen by a tenant"})
	_, err := auth.GetAccessToken(t.Context(), provider, append(opts, tenants)...)
	testenv.CheckError(t, err, auth.ErrMisconfigured, "name a ServiceAccount")
	strict := auth.WithPolicy(auth.Policy{RequireServiceAccount: true})
	_, err = auth.GetAccessToken(t.Context(), provider, append(opts, strict)...)
	testenv.CheckError(t, err, auth.ErrDenied, "does not lend its own identity")

	_, _, tenant := sourced(t, source)
	if got := mustGet(t, provider, append(tenant, own)...); got.identity != "one" || got.subject != "tenant-a/app" {
		t.Errorf("a tenant got %+v", got)
	}
	s := auth.NewAccessTokenSource(provider, opts...)
	for range 2 { // a source of access tokens keeps what depends on options only
		if got, err := s.Token(t.Context()); err != nil || got != auth.Token(first) {
			t.Errorf("got %v, %v", got, err)
		}
	}
}

// A credential leaves the cache with its subject token if the source says so.
// Credentials that are made of it leave too.
func TestSubjectIssuerBoundsTheCache(t *testing.T) {
	for name, tc := range map[string]struct {
		bound time.Duration
		asked int64 // after ten minutes
	}{"no bound": {0, 1}, "five minutes": {5 * time.Minute, 3}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source, provider := &subjects{key: "s", bound: tc.bound}, newClouds()
				k8s := newCluster()
				key := k8s.create("tenant-a", "app", map[string]string{"subject": "a"})
				tokens := testenv.Cache(t)
				opts := []auth.Option{auth.WithSubjectIssuer(source), auth.WithServiceAccount(key, k8s),
					testenv.WithCache(tokens, "tenant-a")}
				get := func() {
					credential, err := auth.GetArtifactRegistryCredentials(t.Context(), provider, "r.example.com/a",
						opts...)
					if err != nil {
						t.Fatal(err)
					}
					if d := credential.GetDuration(); d < 50*time.Minute {
						t.Errorf("the caller's credential is valid for %s", d)
					}
				}
				get()
				tokens.Purge() // of the derived credential; the token is minted anew, and both age alike
				source.asked.Store(0)
				get()
				for range 10 {
					time.Sleep(time.Minute)
					get()
				}
				synctest.Wait()
				if asked, derived := source.asked.Load(), provider.derived.Load()-1; asked != tc.asked ||
					derived != tc.asked {
					t.Errorf("%d subject tokens and %d credentials in ten minutes, want %d", asked, derived, tc.asked)
				}
				source.token = func(context.Context, string, string) (string, error) { return "", errors.New("down") }
				time.Sleep(5 * time.Minute)
				_, err := auth.GetArtifactRegistryCredentials(t.Context(), provider, "r.example.com/a", opts...)
				if bounded := tc.bound != 0; bounded != (err != nil) {
					t.Errorf("with a source that is down: %v", err)
				}
			})
		})
	}
}

// A source that hangs holds up its own tenant only. The callers leave after the
// patience of the cache.
func TestSubjectIssuerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, provider, k8s := &subjects{key: "s"}, &exchange{}, newCluster()
		hanging := k8s.create("tenant-a", "app", map[string]string{"subject": "hangs"})
		other := k8s.create("tenant-b", "app", map[string]string{"subject": "b"})
		source.token = func(ctx context.Context, subject, jwt string) (string, error) {
			if subject != "hangs" {
				return jwt, nil
			}
			<-ctx.Done()
			return "", ctx.Err()
		}
		tokens := testenv.Cache(t, cache.WithPatience(5*time.Second))
		call := func(key client.ObjectKey) error {
			_, err := auth.GetAccessToken(t.Context(), provider, auth.WithSubjectIssuer(source),
				auth.WithServiceAccount(key, k8s), testenv.WithCache(tokens, key.Namespace))
			return err
		}
		left := make(chan error, 1)
		start := time.Now()
		go func() { left <- call(hanging) }()
		synctest.Wait()
		if err := call(other); err != nil || time.Since(start) != 0 {
			t.Errorf("the other tenant waited %s, %v", time.Since(start), err)
		}
		if err := <-left; !errors.Is(err, auth.ErrUnavailable) || time.Since(start) != 5*time.Second {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
	})
}

// A hit allocates no more than one without a source.
func TestSubjectIssuerAllocatesNothingOnHits(t *testing.T) {
	provider := &exchange{}
	_, _, opts := sourced(t, &subjects{key: "s"})
	allocations := func(opts []auth.Option) float64 {
		get := func() { mustGet(t, provider, opts...) }
		get()
		return testing.AllocsPerRun(100, get)
	}
	with, without := allocations(opts), allocations(append(opts, auth.WithSubjectIssuer(nil)))
	if with > without {
		t.Errorf("a hit makes %v allocations, %v without a source", with, without)
	}
}
