package auth_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// Three calls with the same source make one TokenRequest and one exchange.
func TestTokenRequestAsSubjectTokenKeepsTheCacheUseful(t *testing.T) {
	k8s, provider, tokens := newCluster(), &exchange{}, testenv.Cache(t)
	source, _ := tokenRequest(k8s)
	for range 3 {
		mustGet(t, provider, auth.WithSubjectToken(source, *source.ServiceAccount),
			testenv.WithCache(tokens, "tenant-a"))
	}
	if requests, exchanges := k8s.requests.Load(), provider.mints.Load(); requests != 1 || exchanges != 1 {
		t.Errorf("%d TokenRequests and %d exchanges, want 1 and 1", requests, exchanges)
	}
}

// tokenRequest returns a source for a ServiceAccount of the cluster, and a
// function that asks it.
func tokenRequest(k8s interface {
	client.Client
	create(namespace, name string, annotations map[string]string) client.ObjectKey
}) (source *auth.TokenRequest, ask func(ctx context.Context, audiences ...string) (string, error)) {
	key := k8s.create("tenant-a", "app", nil)
	source = &auth.TokenRequest{Client: k8s, ServiceAccount: testenv.ServiceAccount(key.Namespace, key.Name)}
	return source, func(ctx context.Context, audiences ...string) (string, error) {
		token, _, err := source.Token(ctx, audiences)
		return token, err
	}
}

// A TokenRequest uses the controller's right to make tokens, so the namespace
// rule holds although the caller passes it as a token in hand.
func TestTokenRequestNeedsAnOwner(t *testing.T) {
	k8s := newCluster()
	source, _ := tokenRequest(k8s)
	sa := testenv.ServiceAccount("tenant-a", "app")
	for name, tc := range map[string]struct {
		owner auth.Option
		want  provider.Reason
		text  string
	}{
		"no owner":             {nil, auth.ErrMisconfigured, "unknown"},
		"of another namespace": {testenv.Owner("tenant-b"), auth.ErrDenied, "tenant-b"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := auth.GetAccessToken(t.Context(), &exchange{}, tc.owner, auth.WithSubjectToken(source, *sa))
			testenv.CheckError(t, err, tc.want, tc.text)
		})
	}
	if n := k8s.requests.Load(); n != 0 {
		t.Errorf("%d TokenRequests", n)
	}
}

// A long lifetime saves requests: no cap of a token cache applies.
func TestTokenRequestKeepsALongToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k8s := newCluster()
		source, ask := tokenRequest(k8s)
		source.Lifetime = 24 * time.Hour
		for range 17 {
			if _, err := ask(t.Context(), "vault"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
		}
		if n := k8s.requests.Load(); n != 1 {
			t.Errorf("%d TokenRequests in 17 hours for a token of 24, want 1", n)
		}
	})
}

// While a renewal fails for now, callers get the old token and make at most one
// request a second. After its expiry they get the error.
func TestTokenRequestKeepsTheTokenWhileRenewalsFail(t *testing.T) {
	for name, failure := range map[string]error{
		"unavailable":                   errors.New("connection refused"),
		"throttled":                     apierrors.NewTooManyRequestsError("slow down"),
		"RBAC of a starting API server": apierrors.NewForbidden(serviceAccounts, "app", errors.New("not yet")),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k8s := newCluster()
				_, ask := tokenRequest(k8s)
				first, err := ask(t.Context(), "vault")
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(50 * time.Minute)
				k8s.fail(failure)
				for range 50 {
					if got, err := ask(t.Context(), "vault"); err != nil || got != first {
						t.Fatalf("the old token was not kept: %v", err)
					}
					time.Sleep(100 * time.Millisecond)
				}
				if n := k8s.requests.Load() - 1; n < 2 || n > 6 {
					t.Errorf("%d renewals in 5 seconds, want one a second at most", n)
				}
				time.Sleep(10 * time.Minute)
				if got, err := ask(t.Context(), "vault"); err == nil {
					t.Errorf("an expired token was returned, the same %v", got == first)
				}
				k8s.fail(nil)
				if got, err := ask(t.Context(), "vault"); err != nil || got == first {
					t.Errorf("no new token: %v", err)
				}
			})
		})
	}
}

// A renewal that shows the ServiceAccount gone drops the old token.
func TestTokenRequestDropsTheTokenOnAPermanentError(t *testing.T) {
	for name, failure := range map[string]error{
		"not found":     apierrors.NewNotFound(serviceAccounts, "app"),
		"misconfigured": apierrors.NewBadRequest("no such audience"),
		"another UID":   apierrors.NewConflict(serviceAccounts, "app", errors.New("the UID does not match")),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k8s := newCluster()
				_, ask := tokenRequest(k8s)
				if _, err := ask(t.Context(), "vault"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(50 * time.Minute)
				k8s.fail(failure)
				_, _ = ask(t.Context(), "vault") // starts the renewal
				synctest.Wait()
				if _, err := ask(t.Context(), "vault"); err == nil {
					t.Error("the old token was returned after the refusal")
				}
			})
		})
	}
}

// A call with WithInvalidBefore gets another token, once in ten seconds. Other
// calls keep the old one until there is a new one.
func TestTokenRequestWithInvalidBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k8s, provider := newCluster(), &exchange{}
		key := k8s.create("tenant-a", "app", nil)
		sa := corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		opts := []auth.Option{auth.WithSubjectToken(&auth.TokenRequest{Client: k8s, ServiceAccount: &sa}, sa),
			testenv.Cached(t, "tenant-a")}
		refused := func(since time.Time) (auth.Token, error) {
			return auth.GetAccessToken(t.Context(), provider, append(opts[:2:2], auth.WithInvalidBefore(since))...)
		}
		first, obtained := mustGet(t, provider, opts...), time.Now()
		if got, err := refused(time.Now()); got != auth.Token(first) {
			t.Errorf("a token that is seconds old was replaced, %v", err)
		}
		time.Sleep(11 * time.Second)
		k8s.fail(errors.New("connection refused"))
		if _, err := refused(time.Now()); !errors.Is(err, auth.ErrUnavailable) {
			t.Errorf("the refused token was used again: %v", err)
		}
		if mustGet(t, provider, opts...) != first {
			t.Error("other calls lost the token")
		}
		k8s.fail(nil)
		second, err := refused(time.Now())
		if err != nil || second == auth.Token(first) || auth.Token(mustGet(t, provider, opts...)) != second {
			t.Errorf("the token was not replaced for all, %v", err)
		}
		requests := k8s.requests.Load()
		time.Sleep(11 * time.Second)
		if got, err := refused(obtained); got != second || k8s.requests.Load() != requests {
			t.Errorf("the refusal of an old token replaced the new one, %v", err)
		}
	})
}

func TestTokenRequestInvalidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, ask := tokenRequest(newCluster())
		testenv.CheckInvalidate(t, source, func() (string, error) { return ask(t.Context(), "vault") })
	})
}

// Calls that know the new UID of a ServiceAccount that was re-created never get
// the old one's token.
func TestTokenRequestOfAReCreatedServiceAccount(t *testing.T) {
	k8s, provider := newCluster(), &exchange{}
	key := k8s.create("tenant-a", "app", nil)
	named := corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	source := &auth.TokenRequest{Client: k8s, ServiceAccount: &named}
	for want := range int64(2) {
		living := named
		if err := k8s.Get(t.Context(), key, &living); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			mustGet(t, provider, auth.WithSubjectToken(source, living), testenv.Cached(t, "tenant-a"))
		}
		if n := k8s.requests.Load(); n != want+1 {
			t.Errorf("%d TokenRequests, want %d", n, want+1)
		}
		k8s.create("tenant-a", "app", nil)
	}
}

// Each call compares the ServiceAccount with the living one, although the
// source holds a valid token and the cache a valid credential.
func TestTokenRequestChecksTheServiceAccount(t *testing.T) {
	for name, tc := range map[string]struct {
		known  types.UID // to the caller
		ofOwn  types.UID // to the TokenRequest
		change func(k8s *cluster, key client.ObjectKey)
		reason provider.Reason // none: another credential
		want   []string
	}{
		"deleted": {change: (*cluster).remove, reason: auth.ErrMisconfigured,
			want: []string{"not found", "create it"}},
		"re-created": {change: recreate},
		"re-created, UID in the call": {known: "uid-1", change: recreate, reason: auth.ErrDenied,
			want: []string{`"uid-1"`, `"uid-2"`, "re-created"}},
		"re-created, UID in TokenRequest": {ofOwn: "uid-1", change: recreate, reason: auth.ErrDenied,
			want: []string{`"uid-1"`, `"uid-2"`}},
		"being deleted": {change: (*cluster).terminate, reason: auth.ErrMisconfigured,
			want: []string{"being deleted"}},
		"may not be read": {change: forbidReading, reason: auth.ErrDenied,
			want: []string{`verb get on serviceaccounts in namespace "tenant-a"`}},
		"API server gives no answer": {change: func(c *cluster, _ client.ObjectKey) {
			c.readErr = errors.New("down")
		}, reason: auth.ErrUnavailable, want: []string{"down"}},
		"deleted, both UIDs known": {known: "uid-1", ofOwn: "uid-1", change: (*cluster).remove,
			reason: auth.ErrMisconfigured},
	} {
		t.Run(name, func(t *testing.T) {
			k8s, provider := newCluster(), &exchange{}
			key := k8s.create("tenant-a", "app", nil)
			sa := corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: tc.known}}
			own := *sa.DeepCopy()
			own.UID = tc.ofOwn
			opts := []auth.Option{auth.WithSubjectToken(&auth.TokenRequest{Client: k8s, ServiceAccount: &own}, sa),
				testenv.Cached(t, "tenant-a")}
			first := mustGet(t, provider, opts...)
			if mustGet(t, provider, opts...) != first {
				t.Error("the credential was not cached")
			}
			tc.change(k8s, key)
			second, err := auth.GetAccessToken(t.Context(), provider, opts...)
			if tc.reason != "" {
				testenv.CheckError(t, err, tc.reason, tc.want...)
			} else if err != nil || second == auth.Token(first) {
				t.Errorf("got %v after %v, %v", second, first, err)
			}
		})
	}
}

func recreate(k8s *cluster, key client.ObjectKey) { k8s.create(key.Namespace, key.Name, nil) }

func forbidReading(k8s *cluster, key client.ObjectKey) {
	k8s.readErr = apierrors.NewForbidden(serviceAccounts, key.Name, errors.New("no rule"))
}

// The API server compares the UID, so that a ServiceAccount that was re-created
// meanwhile gets no token.
func TestTokenRequestNamesTheUID(t *testing.T) {
	k8s := newCluster()
	source, _ := tokenRequest(k8s)
	source.ServiceAccount.UID = "uid-0"
	_, _, err := source.Token(t.Context(), []string{"vault"})
	testenv.CheckError(t, err, auth.ErrUnavailable, "HTTP 409", "the UID does not match")
}

func TestTokenRequestWithoutItsFields(t *testing.T) {
	k8s := newCluster()
	sa := corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app"}}
	for name, source := range map[string]*auth.TokenRequest{
		"no client":         {ServiceAccount: &sa},
		"nil client":        {ServiceAccount: &sa, Client: (*cluster)(nil)},
		"no ServiceAccount": {Client: k8s},
		"nil":               nil,
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := source.Token(t.Context(), []string{"vault"})
			testenv.CheckError(t, err, auth.ErrMisconfigured)
			_, err = auth.GetAccessToken(t.Context(), &exchange{}, auth.WithSubjectToken(source, sa))
			testenv.CheckError(t, err, auth.ErrMisconfigured)
		})
	}
}

func TestTokenRequestKeepsAudiencesApart(t *testing.T) {
	k8s := newCluster()
	_, ask := tokenRequest(k8s)
	seen := map[string]bool{}
	for _, audiences := range [][]string{{"a"}, {"b"}, {"a", "b"}, {`a" "b`}, {"a"}} {
		token, err := ask(t.Context(), audiences...)
		if err != nil {
			t.Fatal(err)
		}
		seen[token] = true
	}
	if n := k8s.requests.Load(); n != 4 || len(seen) != 4 {
		t.Errorf("%d TokenRequests and %d tokens for four lists of audiences", n, len(seen))
	}
}

func TestTokenRequestKeepsNoError(t *testing.T) {
	k8s := newCluster()
	_, ask := tokenRequest(k8s)
	k8s.requestErr = errors.New("connection refused")
	if _, err := ask(t.Context(), "vault"); !errors.Is(err, auth.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	k8s.requestErr = nil
	if _, err := ask(t.Context(), "vault"); err != nil {
		t.Error(err)
	}
}

// Without WithSubjectToken every exchange has a token of its own.
func TestMintMakesATokenRequestOfItsOwn(t *testing.T) {
	k8s, provider := newCluster(), &exchange{}
	key := k8s.create("tenant-a", "app", nil)
	for range 2 {
		mustGet(t, provider, auth.WithServiceAccount(key, k8s), testenv.Owner("tenant-a"))
	}
	if n := k8s.requests.Load(); n != 2 {
		t.Errorf("%d TokenRequests, want 2", n)
	}
}
