package auth

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cache"
)

// tagging returns tokens that name their tenant, and fails if it gets the
// options of another tenant.
type tagging struct{ keyProvider }

type tag struct {
	namespace string
	expires   time.Time
}

func (t *tag) GetDuration() time.Duration { return time.Until(t.expires) }

func (tagging) NewTokenForServiceAccount(_ context.Context, jwt string, sa *corev1.ServiceAccount,
	opts *provider.Options) (Token, error) {
	claims, err := parseClaims(jwt)
	if err != nil {
		return nil, err
	}
	if claims.Subject != "system:serviceaccount:"+sa.Namespace+":app" || opts.Subject.Namespace != sa.Namespace ||
		opts.STSRegion != sa.Namespace {
		return nil, fmt.Errorf("%s was asked with the token of %q and the options of %q", sa.Namespace, claims.Subject,
			opts.STSRegion)
	}
	return &tag{namespace: sa.Namespace, expires: time.Now().Add(time.Hour)}, nil
}

// tokenCreator answers TokenRequests with a token that the checks let through.
type tokenCreator struct {
	saReader
	namespace string
}

func (c tokenCreator) SubResource(string) client.SubResourceClient {
	return creator{namespace: c.namespace}
}

type creator struct {
	client.SubResourceClient
	namespace string
}

func (c creator) Create(_ context.Context, obj, sub client.Object, _ ...client.SubResourceCreateOption) error {
	if obj.GetNamespace() != c.namespace {
		return fmt.Errorf("the client of %s was asked for %s", c.namespace, obj.GetNamespace())
	}
	request, ok := sub.(*authenticationv1.TokenRequest)
	if !ok {
		return fmt.Errorf("asked for a %T", sub)
	}
	payload := fmt.Sprintf(`{"iss":"i","sub":"system:serviceaccount:%s:app","aud":["same"],"exp":%d}`, c.namespace,
		time.Now().Add(time.Hour).Unix())
	request.Status.Token = "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".c2ln"
	return nil
}

// A million calls of a thousand tenants at once, through a cache that is too
// small and always stale, with options and scratch memory that are shared:
// every tenant gets its own.
func TestTenantsNeverSeeEachOthersCredentials(t *testing.T) {
	const tenants, workers, calls = 1000, 16, 1_000_000
	tokens, err := cache.NewTokenCache(tenants*9/10, cache.WithMaxDuration(200*time.Millisecond),
		cache.WithRate(rate.Inf, 0), cache.WithPatience(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer tokens.Close()
	opts := make([][]Option, tenants)
	for i := range opts {
		namespace := fmt.Sprintf("tenant-%d", i)
		sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "app",
			UID:         types.UID(namespace),
			Annotations: map[string]string{"identity": "same", "audiences": "same"}}}
		opts[i] = []Option{
			WithServiceAccount(client.ObjectKey{Namespace: namespace, Name: "app"}, tokenCreator{saReader{sa: sa}, namespace}),
			WithCache(tokens, cache.InvolvedObject{Namespace: namespace, Name: "object"}),
			WithSTSRegion(namespace),
		}
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range calls / workers {
				tenant := (i*31 + w*7919) % tenants
				token, err := GetAccessToken(t.Context(), tagging{keyProvider{name: "tagging"}}, opts[tenant]...)
				if err != nil {
					t.Errorf("tenant %d: %v", tenant, err)
					return
				}
				if got, ok := token.(*tag); !ok || got.namespace != fmt.Sprintf("tenant-%d", tenant) {
					t.Errorf("tenant %d got %v", tenant, token)
					return
				}
			}
		})
	}
	wg.Wait()
}

// An exchange takes the slots of the owner's namespace with the controller's
// own identity, or through an object's address.
func TestTenantOfAnExchange(t *testing.T) {
	inHand := WithSubjectToken(NewStaticTokenSource("x"),
		corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "owner", Name: "app"}})
	proxy, owner := WithProxyURL(url.URL{Scheme: "http", Host: "h"}),
		WithOwner(cache.InvolvedObject{Namespace: "owner", Name: "o"})
	for name, tc := range map[string]struct {
		opts      []Option
		sa        string
		want      string
		ofDerived string // if it differs
	}{
		"own ServiceAccount":                {[]Option{owner}, "owner", "owner", ""},
		"shared ServiceAccount":             {[]Option{owner}, "shared", "shared", "owner"},
		"shared, own proxy":                 {[]Option{owner, proxy}, "shared", "owner", ""},
		"shared, own region":                {[]Option{owner, WithSTSRegion("r1")}, "shared", "owner", ""},
		"shared, own endpoint":              {[]Option{owner, WithSTSEndpoint("https://e")}, "shared", "owner", ""},
		"controller":                        {[]Option{owner}, "", "owner", ""},
		"controller, a region":              {[]Option{owner, WithSTSRegion("r1")}, "", "owner", ""},
		"controller, for itself":            {nil, "", "", ""},
		"the same, a region":                {[]Option{WithSTSRegion("r1")}, "", "region r1", ""},
		"token in hand":                     {[]Option{inHand}, "owner", "unverified token", ""},
		"token in hand, owner":              {[]Option{inHand, owner}, "owner", "owner", ""},
		"token in hand, own proxy":          {[]Option{inHand, owner, proxy}, "owner", "owner", ""},
		"controller, own proxy":             {[]Option{owner, proxy}, "", "owner", ""},
		"controller, proxy, unknown":        {[]Option{proxy}, "", "", ""},
		"ServiceAccount of cluster one":     {[]Option{owner, WithClusterID("one")}, "owner", "one owner", ""},
		"the same namespace of cluster two": {[]Option{owner, WithClusterID("two")}, "owner", "two owner", ""},
		"controller, for cluster two":       {[]Option{owner, WithClusterID("two")}, "", "two owner", ""},
		"token in hand, involved object": {
			[]Option{inHand, WithCache(nil, cache.InvolvedObject{Namespace: "owner", Name: "o"})}, "owner", "owner", ""},
		"token in hand, cluster two": {[]Option{inHand, WithClusterID("two")}, "owner", "two unverified token", ""},
	} {
		s := &resolved{}
		for _, opt := range tc.opts {
			opt(&s.opts)
		}
		if tc.sa != "" && s.opts.SubjectServiceAccount == nil {
			s.opts.ServiceAccount = &client.ObjectKey{Namespace: tc.sa, Name: "app"}
		}
		if got := s.tenant(); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
		if s.product = (&product{}); tc.ofDerived == "" {
			tc.ofDerived = tc.want
		}
		if got := s.tenant(); got != tc.ofDerived {
			t.Errorf("%s, derived credential: %q, want %q", name, got, tc.ofDerived)
		}
	}
}

// The longest hint counts, however deep it lies.
func TestRetryAfterOfWrappedErrors(t *testing.T) {
	inner := &Error{Reason: ErrThrottled, Wait: 7 * time.Second}
	outer := describe(fmt.Errorf("wrapped: %w", inner), "p", "op", client.ObjectKey{})
	if got := RetryAfter(&Error{Wait: time.Second, Err: outer}); got != 7*time.Second {
		t.Errorf("got %s", got)
	}
	for name, err := range map[string]error{"joined": errors.Join(errors.New("x"), outer),
		"wrapped with another": fmt.Errorf("%w, %w", errors.New("x"), outer)} {
		if got := RetryAfter(err); got != 7*time.Second {
			t.Errorf("%s: got %s", name, got)
		}
	}
	if RetryAfter(errors.New("x")) != 0 || RetryAfter(nil) != 0 {
		t.Error("hints out of nothing")
	}
}

// A limit of the cache is ErrThrottled with the cache's hint, and does not
// blame the service.
func TestErrorOfALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens, err := cache.NewTokenCache(10, cache.WithMaxExchangesPerTenant(1))
		if err != nil {
			t.Fatal(err)
		}
		go tokens.GetOrSet(t.Context(),
			cache.Request{Provider: "hanging", Mint: func(ctx context.Context, _ []cache.Token) (cache.Minted, error) {
				//nolint:errcheck // fails
				<-ctx.Done()
				return cache.Minted{}, ctx.Err()
			}})
		synctest.Wait()
		_, err = GetAccessToken(t.Context(), keyProvider{name: "hanging"}, WithCache(tokens, cache.InvolvedObject{}))
		var limit *cache.LimitError
		if !errors.Is(err, ErrThrottled) || RetryAfter(err) != time.Second || !errors.As(err, &limit) {
			t.Errorf("got %v, retry after %s", err, RetryAfter(err))
		}
		if s := tokens.Stats(); s.Failing != nil {
			t.Errorf("it counts as a failure: %+v", s)
		}
		tokens.Close()
	})
}
