package auth_test

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

func boundTo(pod string) auth.Option {
	return auth.WithBoundObject(authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod})
}

// held is a token that the caller holds.
type held string

func (h held) Token(context.Context, []string) (string, time.Time, error) {
	return string(h), time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC), nil
}

// session is a variation, as a provider knows some.
func session(name string) auth.Option { return auth.WithProviderOption(sessionOption{}, name) }

type sessionOption struct{}

func (ownIdentity) ValidateOptions(*provider.Options) error { return nil }

func (ownIdentity) AddToCacheKey(key provider.KeyBuilder, _ *corev1.ServiceAccount, opts *provider.Options) {
	if name, ok := opts.Value(sessionOption{}).(string); ok {
		key.AddVariation("session", []string{name})
	}
}

func refused(context.Context, string) (auth.Token, error) {
	return nil, &auth.Error{Reason: auth.ErrDenied, Message: "the role is broken"}
}

// The failures of two objects hold back others only where nothing differs that
// could be the cause.
func TestFailuresAreSharedWithinAGroup(t *testing.T) {
	policy := auth.WithPolicy(auth.Policy{AllowAnyAudience: true,
		AllowCrossNamespace: func(cache.InvolvedObject, client.ObjectKey) bool { return true }})
	k8s := newCluster()
	key := k8s.create("tenant-a", "app", nil)
	account := auth.WithServiceAccount(key, k8s)
	inHand := func(signature string) auth.Option {
		claims := map[string]any{"iss": "https://issuer.example", "sub": "system:serviceaccount:tenant-a:app",
			"aud": []string{"exchange"},
			"exp": time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC).Unix()}
		source := held(unsigned(claims) + signature)
		return func(o *auth.Options) {
			o.ServiceAccount, o.Client, o.BoundObject = nil, nil, nil
			session(signature)(o)
			auth.WithSubjectToken(source,
				corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app"}})(o)
		}
	}
	own := func(o *auth.Options) { o.ServiceAccount = nil }
	proxy := auth.WithProxyURL(url.URL{Scheme: "http", Host: "proxy.example"})
	for name, tc := range map[string]struct {
		failing, other []auth.Option
		shared         bool
	}{
		"another pod": {other: []auth.Option{boundTo("pod-2")}, shared: true},
		"another object of the namespace": {other: []auth.Option{boundTo("pod-2"),
			auth.WithOwner(cache.InvolvedObject{Namespace: "tenant-a", Name: "x"})}, shared: true},
		"another pod, the controller's identity": {failing: []auth.Option{own}, other: []auth.Option{own, boundTo("pod-2")},
			shared: true},
		"another session": {failing: []auth.Option{session("1")}, other: []auth.Option{session("2")},
			shared: true},
		"no pod": {other: []auth.Option{func(o *auth.Options) { o.BoundObject = nil }}},
		"another tenant": {other: []auth.Option{boundTo("pod-2"),
			testenv.Owner("tenant-b")}},
		"another tenant, the controller's identity": {failing: []auth.Option{own}, other: []auth.Option{own, boundTo("pod-2"),
			testenv.Owner("tenant-b")}},
		"the controller's identity": {other: []auth.Option{own, boundTo("pod-2")}},
		"another ServiceAccount": {other: []auth.Option{boundTo("pod-2"),
			auth.WithServiceAccount(k8s.create("tenant-a", "other", nil), k8s)}},
		"another role": {other: []auth.Option{boundTo("pod-2"),
			auth.WithServiceAccount(k8s.create("tenant-a", "role", map[string]string{"identity": "two"}), k8s)}},
		"broken STS endpoint": {failing: []auth.Option{auth.WithSTSEndpoint("https://broken.example")},
			other: []auth.Option{boundTo("pod-2")}},
		"broken region": {failing: []auth.Option{auth.WithSTSRegion("broken")},
			other: []auth.Option{boundTo("pod-2")}},
		"broken proxy": {failing: []auth.Option{proxy}, other: []auth.Option{boundTo("pod-2")}},
		"broken scope": {failing: []auth.Option{auth.WithScopes("broken")},
			other: []auth.Option{boundTo("pod-2")}},
		"broken audience": {failing: []auth.Option{auth.WithAudiences("broken")},
			other: []auth.Option{boundTo("pod-2")}},
		"broken lifetime": {failing: []auth.Option{auth.WithTokenLifetime(11 * time.Minute)},
			other: []auth.Option{boundTo("pod-2")}},
		"a token that was forged":   {failing: []auth.Option{inHand("forged")}, other: []auth.Option{boundTo("pod-2")}},
		"two tokens, one is forged": {failing: []auth.Option{inHand("forged")}, other: []auth.Option{inHand("genuine")}},
	} {
		t.Run(name, func(t *testing.T) {
			provider := ownIdentity{newClouds()}
			provider.mint = refused
			base := []auth.Option{account, testenv.Cached(t, "tenant-a"), policy, boundTo("pod-1")}
			get := func(more []auth.Option) error {
				_, err := auth.GetAccessToken(t.Context(), provider, append(base[:len(base):len(base)], more...)...)
				return err
			}
			for _, key := range [][]auth.Option{{session("0")}, nil} { // the failures of a single key hold back no other
				if err := get(append(slices.Clone(tc.failing), key...)); !errors.Is(err, auth.ErrDenied) {
					t.Fatal(err)
				}
			}
			provider.mint = nil
			err := get(tc.other)
			if tc.shared != errors.Is(err, auth.ErrDenied) || !tc.shared && err != nil {
				t.Errorf("got %v after %d exchanges", err, provider.mints.Load())
			}
			if wait := auth.RetryAfter(err); tc.shared && (wait <= 0 || wait > time.Second) {
				t.Errorf("retry after %s", wait)
			}
		})
	}
}

// Failures that are not the exchange's say nothing of other pods: a pod is
// gone, a registry refuses.
func TestFailuresOfOnePodOrRegistry(t *testing.T) {
	k8s, provider := newCluster(), newClouds()
	opts := []auth.Option{auth.WithServiceAccount(k8s.create("tenant-a", "app", nil), k8s),
		testenv.Cached(t, "tenant-a")}
	k8s.requestErr = errors.New("the pod is gone")
	if _, err := auth.GetAccessToken(t.Context(), provider, append(opts[:2:2], boundTo("pod-1"))...); err == nil {
		t.Fatal("no error")
	}
	k8s.requestErr = nil
	mustGet(t, provider, append(opts[:2:2], boundTo("pod-2"))...)

	// A provider may request the token itself.
	provider.mint = func(ctx context.Context, _ string) (auth.Token, error) {
		k8s.requestErr = errors.New("the pod is gone")
		sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app"}}
		_, _, err := (&auth.TokenRequest{Client: k8s, ServiceAccount: sa}).Token(ctx, []string{"exchange"})
		k8s.requestErr = nil
		return nil, err
	}
	if _, err := auth.GetAccessToken(t.Context(), provider, append(opts[:2:2], boundTo("pod-5"))...); err == nil {
		t.Fatal("no error")
	}
	provider.mint = nil
	mustGet(t, provider, append(opts[:2:2], boundTo("pod-6"))...)

	provider.newToken = func(kind string, _ []auth.Token) error {
		if kind == "registry a.example.com" {
			return &auth.Error{Reason: auth.ErrDenied, Message: "not this registry"}
		}
		return nil
	}
	pod := append(opts[:2:2], boundTo("pod-3"))
	if _, err := auth.GetArtifactRegistryCredentials(t.Context(), provider, "a.example.com/app", pod...); !errors.Is(err,
		auth.ErrDenied) {
		t.Fatal(err)
	}
	for _, pod := range []string{"pod-3", "pod-4"} {
		if _, err := auth.GetArtifactRegistryCredentials(t.Context(), provider, "b.example.com/app",
			append(opts[:2:2], boundTo(pod))...); err != nil {
			t.Error(err)
		}
	}
}
