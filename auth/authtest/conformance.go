package authtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cache"
)

// Harness describes a provider to [RunConformance]. The suite leaves out the
// cases whose fields are empty.
type Harness struct {
	// New returns a provider as a controller makes it. Required.
	New func(t *testing.T) auth.Provider
	// Options apply to every call, such as a region and auth.WithHTTPClient.
	Options []auth.Option
	// Client is the Kubernetes client. Required.
	Client auth.KubernetesClient
	// Source is the SubjectIssuer of every call. Nil: the API server.
	Source auth.SubjectIssuer
	// Good names a ServiceAccount that gets a credential. Required. Each of its
	// annotations has to shape the credential.
	Good client.ObjectKey
	// Other names another ServiceAccount that gets a credential. The suite
	// compares its Secrets with Good's.
	Other client.ObjectKey
	// Refused names a ServiceAccount whose token the service refuses.
	// Annotations equal to Good's find the most mistakes.
	Refused client.ObjectKey
	// Malformed names a ServiceAccount with malformed annotations.
	Malformed client.ObjectKey
	// Annotations are further annotations that shape the credential, each with
	// a value for which Good gets a credential. An annotation of Good itself
	// belongs here, with another value, if GetIdentity refuses its own value
	// followed by "x".
	Annotations map[string]string
	// Fields holds another value for each exported field of the provider. Each
	// value gives Good another access token. The value is nil for a field on
	// which the access token does not depend. List every exported field.
	Fields map[string]any
	// NoRegions states that the service has no regions, so the provider ignores
	// auth.WithSTSRegion.
	NoRegions bool
	// Break makes the service fail until the test ends: with ErrThrottled, with
	// ErrUnavailable, or without an answer (Hang).
	Break func(t *testing.T, how provider.Reason)
	// Calls returns the number of calls that the service has received.
	Calls func() int
	// Secrets returns the secrets of a token, such as its access token. They
	// must not show when the token is printed.
	Secrets func(t *testing.T, token auth.Token) []string

	// Repository is an artifact repository of the provider. ForeignRepositories
	// belong to others, such as look-alikes.
	Repository          string
	ForeignRepositories []string
	// Cluster holds the options that name a cluster.
	Cluster []auth.Option
	// GitURL is a Git repository of the provider. ForeignGitURLs belong to
	// others.
	GitURL         string
	ForeignGitURLs []string
}

// Hang is the argument of [Harness.Break] for a service that does not answer.
const Hang provider.Reason = "hang"

// RunConformance checks the contract of [auth.Provider], one case in each
// sub-test of t. It sends requests through the client of [auth.WithHTTPClient]
// in [Harness.Options], redirects some of them and replaces some answers.
func RunConformance(t *testing.T, h Harness) {
	derived, overHTTP := len(h.derivedKinds()) > 0, h.options().HTTPClient != nil
	for _, c := range []struct {
		name       string
		registered bool
		run        func(*testing.T)
	}{
		{"GetName returns one constant name", true, h.testName},
		{"GetIdentity and GetAudiences are deterministic and make no request", true, h.testInspection},
		{"the ServiceAccount gets a credential with a lifetime", true, h.testGood},
		{"the token redacts itself", h.Secrets != nil, h.testRedaction},
		{"options and ServiceAccount stay unchanged", true, h.testArguments},
		{"concurrent calls succeed", true, h.testConcurrency},
		{"no ServiceAccount gets the credential of another", h.Other.Name != "" && h.Secrets != nil, h.testOther},
		{"a refusal is ErrDenied without a fallback", h.Refused.Name != "", h.testRefused},
		{"a malformed annotation is ErrMisconfigured before any request", h.Malformed.Name != "", h.testMalformed},
		{"the caller's annotations win and errors name the caller", h.Malformed.Name != "", h.testCallersIdentity},
		{"every annotation is part of the cache key", len(h.variations(t)) > 0, h.testAnnotations},
		{"every annotation is listed", len(h.variations(t)) > 0, h.testAnnotationReader},
		{"every field of the provider is part of the cache key", true, h.testFields},
		{"a foreign STS endpoint is refused before any request", true,
			h.testRefusal(auth.WithSTSEndpoint("https://" + elsewhere))},
		{"a malformed region is refused before any request", !h.NoRegions, h.testRefusal(auth.WithSTSRegion("no region"))},
		{"a throttled call is ErrThrottled", h.Break != nil, func(t *testing.T) { h.testBroken(t, auth.ErrThrottled) }},
		{"an outage is ErrUnavailable", h.Break != nil, func(t *testing.T) { h.testBroken(t, auth.ErrUnavailable) }},
		{"a call ends with its context", h.Break != nil && h.Calls != nil, func(t *testing.T) {
			h.testCancel(t, accessToken())
		}},
		{"no redirect is followed", overHTTP, h.testRedirects},
		{"the length of answers is limited", overHTTP, h.testEndlessBodies},
		{"derived credentials have a lifetime, redact themselves and are cached", derived, h.testDerived},
		{"access to a cluster is described deterministically and without a request", len(h.Cluster) > 0, h.testCluster},
		{"a foreign host gets no credential", len(h.foreign()) > 0, h.testForeign},
		{"a derived call ends with its context", derived && h.Break != nil && h.Calls != nil, func(t *testing.T) {
			h.testCancel(t, h.derivedKinds()...)
		}},
	} {
		if c.registered {
			t.Run(c.name, c.run)
		}
	}
}

// ask returns the options of a call for a ServiceAccount.
func (h *Harness) ask(sa client.ObjectKey, more ...auth.Option) []auth.Option {
	return append(append(slices.Clone(h.Options), auth.WithServiceAccount(sa, h.Client), auth.WithSubjectIssuer(h.Source),
		auth.WithOwner(owner(sa))), more...)
}

func owner(sa client.ObjectKey) cache.InvolvedObject {
	return cache.InvolvedObject{Kind: "Conformance", Namespace: sa.Namespace, Name: "test"}
}

func (h *Harness) get(ctx context.Context, p auth.Provider, sa client.ObjectKey) (auth.Token, error) {
	return auth.GetAccessToken(ctx, p, h.ask(sa)...)
}

func (h *Harness) serviceAccount(t *testing.T, key client.ObjectKey) corev1.ServiceAccount {
	t.Helper()
	var sa corev1.ServiceAccount
	if err := h.Client.Get(t.Context(), key, &sa); err != nil {
		t.Fatal(err)
	}
	return sa
}

func (h *Harness) options(more ...auth.Option) *provider.Options {
	o := &auth.Options{}
	for _, opt := range slices.Concat(h.Options, more) {
		opt(o)
	}
	return &o.Options
}

func (h *Harness) testName(t *testing.T) {
	p := h.New(t)
	if name := p.GetName(); name == "" || name != p.GetName() || name != h.New(t).GetName() {
		t.Errorf("GetName returned %q and another name", name)
	}
}

func (h *Harness) testInspection(t *testing.T) {
	p, sa := h.New(t), h.serviceAccount(t, h.Good)
	defer h.noCalls(t)()
	for range 3 {
		identity, err := p.GetIdentity(&sa, h.options())
		again, _ := p.GetIdentity(sa.DeepCopy(), h.options())
		if err != nil || identity != again {
			t.Errorf("GetIdentity: %q and %q, %v", identity, again, err)
		}
		audiences, err := p.GetAudiences(t.Context(), &sa, h.options())
		more, _ := p.GetAudiences(t.Context(), sa.DeepCopy(), h.options())
		if err != nil || !slices.Equal(audiences, more) || len(audiences) == 0 || slices.Contains(audiences, "") {
			t.Errorf("GetAudiences: %q and %q, %v", audiences, more, err)
		}
	}
}

// noCalls returns a function that fails the test if the service was called in
// the meantime.
func (h *Harness) noCalls(t *testing.T) func() {
	t.Helper()
	before := h.calls()
	return func() {
		t.Helper()
		if n := h.calls() - before; n != 0 {
			t.Errorf("the service received %d calls, want none", n)
		}
	}
}

func (h *Harness) calls() int {
	if h.Calls == nil {
		return 0
	}
	return h.Calls()
}

func (h *Harness) testGood(t *testing.T) {
	checkLifetime(t, "the access token", h.good(t))
}

func (h *Harness) good(t *testing.T) auth.Token {
	t.Helper()
	token, err := h.get(t.Context(), h.New(t), h.Good)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func checkLifetime(t *testing.T, what string, token auth.Token) {
	t.Helper()
	if d := token.GetDuration(); d <= 0 || d > 24*time.Hour {
		t.Errorf("%s: GetDuration returned %s, want a positive duration up to 24h", what, d)
	}
}

func (h *Harness) testRedaction(t *testing.T) {
	token := h.good(t)
	checkRedaction(t, "the token", token, h.Secrets(t, token))
}

func checkRedaction(t *testing.T, what string, token auth.Token, secrets []string) {
	t.Helper()
	printed := printAll(token, struct{ T auth.Token }{token}, map[string]auth.Token{"t": token}, []any{token})
	if v := reflect.ValueOf(token); v.Kind() == reflect.Pointer {
		printed += printAll(v.Elem().Interface())
	}
	for _, secret := range secrets {
		for _, form := range []string{secret, fmt.Sprintf("%x", secret), fmt.Sprintf("%X", secret)} {
			if form != "" && strings.Contains(printed, form) {
				t.Errorf("%s shows a secret when it is printed", what)
			}
		}
	}
}

// printAll prints values with every verb and logger that programs use.
func printAll(values ...any) string {
	var b strings.Builder
	logger := funcr.New(func(prefix, args string) { b.WriteString(prefix + args) }, funcr.Options{})
	for _, v := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t"} {
			fmt.Fprintf(&b, verb, v)
		}
		slog.New(slog.NewTextHandler(&b, nil)).Info("token", "value", v)
		slog.New(slog.NewJSONHandler(&b, nil)).Info("token", "value", v)
		logger.Info("token", "value", v)
		if encoded, err := json.Marshal(v); err == nil {
			b.Write(encoded)
		}
	}
	return b.String()
}

func (h *Harness) testArguments(t *testing.T) {
	p, sa, opts := h.New(t), h.serviceAccount(t, h.Good), h.options()
	before, optsBefore := *sa.DeepCopy(), *opts
	identity, err := p.GetIdentity(&sa, opts)
	if err != nil {
		t.Fatal(err)
	}
	opts.Identity, optsBefore.Identity = identity, identity // as package auth does
	if c, ok := p.(provider.CacheKeyContributor); ok {
		c.AddToCacheKey(noKey{}, &sa, opts)
	}
	audiences, err := p.GetAudiences(t.Context(), &sa, opts)
	if err != nil {
		t.Fatal(err)
	}
	jwt := h.subjectToken(t, sa.DeepCopy(), audiences)
	if _, err := p.NewTokenForServiceAccount(t.Context(), jwt, &sa, opts); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(sa, before) || !reflect.DeepEqual(*opts, optsBefore) {
		t.Error("GetIdentity, AddToCacheKey, GetAudiences or NewTokenForServiceAccount changed its arguments")
	}
}

func (h *Harness) testConcurrency(t *testing.T) {
	p := h.New(t)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if _, err := h.get(t.Context(), p, h.Good); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// testOther asks one provider value twice, because the provider may keep
// credentials in it.
func (h *Harness) testOther(t *testing.T) {
	p := h.New(t)
	good, err := h.get(t.Context(), p, h.Good)
	other, otherErr := h.get(t.Context(), p, h.Other)
	if err := errors.Join(err, otherErr); err != nil {
		t.Fatal(err)
	}
	if slices.Equal(h.Secrets(t, good), h.Secrets(t, other)) {
		t.Errorf("the provider returns the credential of %s to %s; leave caching to auth.WithCache", h.Good, h.Other)
	}
}

// testRefused first gets a credential for Good, which the provider may keep and
// must not return for Refused.
func (h *Harness) testRefused(t *testing.T) {
	p := h.New(t)
	if _, err := h.get(t.Context(), p, h.Good); err != nil {
		t.Fatal(err)
	}
	token, err := h.get(t.Context(), p, h.Refused)
	if !errors.Is(err, auth.ErrDenied) || token != nil {
		t.Fatalf("got %v, %v, want ErrDenied", token, err)
	}
	var known *auth.Error
	if !errors.As(err, &known) || known.Provider == "" || known.ServiceAccount != h.Refused {
		t.Errorf("the error names neither the provider nor the ServiceAccount: %v", err)
	}
}

func (h *Harness) testMalformed(t *testing.T) {
	defer h.noCalls(t)()
	if token, err := h.get(t.Context(), h.New(t), h.Malformed); !errors.Is(err, auth.ErrMisconfigured) || token != nil {
		t.Errorf("got %v, %v, want ErrMisconfigured", token, err)
	}
}

// testCallersIdentity names the good ServiceAccount, and passes the annotations
// of the malformed one as the caller's.
func (h *Harness) testCallersIdentity(t *testing.T) {
	noCalls, callers := h.noCalls(t), h.serviceAccount(t, h.Malformed).Annotations
	token, err := auth.GetAccessToken(t.Context(), h.New(t), h.ask(h.Good, auth.WithAnnotations(callers))...)
	var known *auth.Error
	if !errors.As(err, &known) || known.Reason != auth.ErrMisconfigured || token != nil ||
		len(known.CallersAnnotations) == 0 {
		t.Errorf("got %v, %v, want ErrMisconfigured that names the caller's annotations", token, err)
	}
	noCalls()
	own := h.serviceAccount(t, h.Good).Annotations
	if _, err := auth.GetAccessToken(t.Context(), h.New(t), h.ask(h.Good, auth.WithAnnotations(own))...); err != nil {
		t.Errorf("with the ServiceAccount's own annotations as the caller's: %v", err)
	}
}

// testRefusal expects every provider to refuse the option, even a provider that
// does not use it.
func (h *Harness) testRefusal(option auth.Option) func(*testing.T) {
	return func(t *testing.T) {
		defer h.noCalls(t)()
		token, err := auth.GetAccessToken(t.Context(), h.New(t), h.ask(h.Good, option)...)
		if !errors.Is(err, auth.ErrMisconfigured) || token != nil {
			t.Errorf("got %v, %v, want ErrMisconfigured; refuse in ValidateOptions what the provider does not use", token, err)
		}
	}
}

// noKey ignores all inputs.
type noKey struct{}

func (noKey) Add(string, string)            {}
func (noKey) AddList(string, []string)      {}
func (noKey) AddVariation(string, []string) {}

// variations returns annotations that give Good another credential, or none:
// Good's own with other values, and Harness.Annotations.
func (h *Harness) variations(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for name, value := range h.serviceAccount(t, h.Good).Annotations {
		all[name] = value + "x"
	}
	maps.Copy(all, h.Annotations)
	return all
}

func (h *Harness) testAnnotations(t *testing.T) {
	call := h.sharedCache(t)
	for name, value := range h.variations(t) {
		what := fmt.Sprintf("annotation %s=%q of Harness.Annotations", name, value)
		err := call(what, h.New(t), auth.WithAnnotations(map[string]string{name: value}))
		if _, valid := h.Annotations[name]; valid && err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func (h *Harness) testAnnotationReader(t *testing.T) {
	var read []string
	if p, ok := h.New(t).(provider.AnnotationReader); ok {
		read = p.GetAnnotations()
	}
	for name := range h.variations(t) {
		if !slices.Contains(read, name) {
			t.Errorf("GetAnnotations returns %q: add %q, or auth.ServiceAccountTransform drops it", read, name)
		}
	}
}

func (h *Harness) testFields(t *testing.T) {
	call, of := h.sharedCache(t), reflect.Indirect(reflect.ValueOf(h.New(t)))
	if of.Kind() != reflect.Struct {
		return
	}
	for n := range of.NumField() {
		field, p := of.Type().Field(n), h.New(t)
		value, listed := h.Fields[field.Name]
		switch {
		case field.IsExported() && !listed:
			t.Errorf("add the field %s to Harness.Fields", field.Name)
		case value != nil:
			reflect.ValueOf(p).Elem().Field(n).Set(reflect.ValueOf(value))
			// The service of another value may not exist.
			_ = call(fmt.Sprintf("field %s with the value %v of Harness.Fields", field.Name, value), p)
		}
	}
}

// sharedCache returns a function that makes a call for Good with something that
// shapes the credential. All calls share a cache. A call that succeeds without
// a new entry received the credential of another call.
func (h *Harness) sharedCache(t *testing.T) func(what string, p auth.Provider, different ...auth.Option) error {
	tokens := newCache(t)
	opts := h.ask(h.Good, auth.WithCache(tokens, owner(h.Good)))
	if _, err := auth.GetAccessToken(t.Context(), h.New(t), opts...); err != nil {
		t.Fatal(err)
	}
	return func(what string, p auth.Provider, different ...auth.Option) error {
		before, calls := tokens.Len(), h.calls()
		_, err := auth.GetAccessToken(t.Context(), p, slices.Concat(opts, different)...)
		switch {
		case errors.Is(err, auth.ErrMisconfigured) && h.calls() == calls:
			t.Errorf("%s is refused as malformed, so the cache key stays unknown; add another valid value to the Harness: %v",
				what, err)
		case err == nil && tokens.Len() == before:
			t.Errorf("%s is not part of the cache key: return it from GetIdentity or GetAudiences, or add it in AddToCacheKey",
				what)
		}
		return err
	}
}

func newCache(t *testing.T) *cache.TokenCache {
	t.Helper()
	tokens, err := cache.NewTokenCache(100)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tokens.Close)
	return tokens
}

func (h *Harness) testBroken(t *testing.T, reason provider.Reason) {
	h.Break(t, reason)
	token, err := h.get(t.Context(), h.New(t), h.Good)
	if !errors.Is(err, reason) || token != nil {
		t.Errorf("got %v, %v, want %v", token, err, reason)
	}
	if err != nil && strings.Contains(err.Error(), "eyJ") {
		t.Errorf("the error holds a token: %v", err)
	}
}
