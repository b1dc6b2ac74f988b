package authtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
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
	"github.com/workloadid/workloadid/cache"
)

// Harness tells RunConformance how to use a provider.
type Harness struct {
	// New returns a provider as a controller would make it.
	New func(t *testing.T) auth.Provider
	// Options are those that every call needs, such as a region and the HTTP client.
	Options []auth.Option
	// Client is the Kubernetes client.
	Client client.Client
	// Good names a ServiceAccount that gets a credential.
	Good client.ObjectKey
	// Refused names one whose token the service refuses. Empty if there is no such thing.
	Refused client.ObjectKey
	// Malformed names one whose annotations are malformed. Empty if there is no such thing.
	Malformed client.ObjectKey
	// Break makes the service fail until the test ends: ErrThrottled, ErrUnavailable, or no answer at all for "hang".
	// Nil if the provider uses no service.
	Break func(t *testing.T, how auth.Reason)
	// Calls returns how often the service was called so far. Nil if the provider uses none.
	Calls func() int
	// Secrets returns what must not show in the printed token, such as its access token.
	Secrets func(t *testing.T, token auth.Token) []string

	// The rest is for providers with registries, clusters and Git repositories; empty if there is no such thing.

	// Repository is an artifact repository of the provider's, ForeignRepositories are others', such as look-alikes.
	Repository          string
	ForeignRepositories []string
	// Cluster are the options that name a cluster.
	Cluster []auth.Option
	// GitURL is a Git repository of the provider's, ForeignGitURLs are others'.
	GitURL         string
	ForeignGitURLs []string
}

// Hang is the argument of Harness.Break for a service that does not answer.
const Hang auth.Reason = "hang"

// RunConformance checks what every auth.Provider has to do, in subtests of t.
func RunConformance(t *testing.T, h Harness) {
	t.Run("names itself", h.testName)
	t.Run("inspects ServiceAccounts without a network and always alike", h.testInspection)
	t.Run("hands out credentials that live", h.testGood)
	t.Run("hands out tokens that redact themselves", h.testRedaction)
	t.Run("changes neither the options nor the ServiceAccount", h.testArguments)
	t.Run("is safe for concurrent use", h.testConcurrency)
	t.Run("tells a refusal, and falls back to nothing", h.testRefused)
	t.Run("tells malformed annotations before it asks anyone", h.testMalformed)
	t.Run("lets the caller's annotations win, and names the caller in errors", h.testCallersIdentity)
	t.Run("tells that it is throttled", func(t *testing.T) { h.testBroken(t, auth.ErrThrottled) })
	t.Run("tells that the service is unavailable", func(t *testing.T) { h.testBroken(t, auth.ErrUnavailable) })
	t.Run("ends with the caller's context", h.testCancel)
	t.Run("derives credentials that live, redact themselves and are cached", h.testDerived)
	t.Run("describes access to a cluster without a network and always alike", h.testCluster)
	t.Run("makes no credential for somebody else's host", h.testForeign)
	t.Run("ends deriving with the caller's context", h.testDerivedCancel)
}

func (h *Harness) get(ctx context.Context, p auth.Provider, sa client.ObjectKey) (auth.Token, error) {
	opts := append(slices.Clone(h.Options), auth.WithServiceAccount(sa, h.Client),
		auth.WithOwner(cache.InvolvedObject{Kind: "Conformance", Namespace: sa.Namespace, Name: "test"}))
	return auth.GetAccessToken(ctx, p, opts...)
}

func (h *Harness) serviceAccount(t *testing.T, key client.ObjectKey) corev1.ServiceAccount {
	t.Helper()
	var sa corev1.ServiceAccount
	if err := h.Client.Get(t.Context(), key, &sa); err != nil {
		t.Fatal(err)
	}
	return sa
}

func (h *Harness) options() *auth.Options {
	o := &auth.Options{}
	for _, opt := range h.Options {
		opt(o)
	}
	return o
}

func (h *Harness) testName(t *testing.T) {
	p := h.New(t)
	if name := p.GetName(); name == "" || name != p.GetName() || name != h.New(t).GetName() {
		t.Errorf("GetName() is %q, and not always", name)
	}
}

func (h *Harness) testInspection(t *testing.T) {
	p, sa := h.New(t), h.serviceAccount(t, h.Good)
	before := h.calls()
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
	if n := h.calls() - before; n != 0 {
		t.Errorf("the service was called %d times", n)
	}
}

func (h *Harness) calls() int {
	if h.Calls == nil {
		return 0
	}
	return h.Calls()
}

func (h *Harness) testGood(t *testing.T) {
	token, err := h.get(t.Context(), h.New(t), h.Good)
	if err != nil {
		t.Fatal(err)
	}
	if d := token.GetDuration(); d <= 0 || d > 24*time.Hour {
		t.Errorf("the credential lives for %s", d)
	}
}

func (h *Harness) testRedaction(t *testing.T) {
	token, err := h.get(t.Context(), h.New(t), h.Good)
	if err != nil {
		t.Fatal(err)
	}
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
				t.Errorf("%s holds a secret when it is printed", what)
			}
		}
	}
}

// printAll prints values in all ways that programs print.
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
	audiences, err := p.GetAudiences(t.Context(), &sa, opts)
	if err != nil {
		t.Fatal(err)
	}
	jwt, _, err := (&auth.TokenRequest{Client: h.Client, ServiceAccount: &sa}).Token(t.Context(), audiences)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.NewTokenForServiceAccount(t.Context(), jwt, &sa, opts); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(sa, before) || !reflect.DeepEqual(*opts, optsBefore) {
		t.Error("they were changed")
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

func (h *Harness) testRefused(t *testing.T) {
	if h.Refused.Name == "" {
		return
	}
	token, err := h.get(t.Context(), h.New(t), h.Refused)
	if !errors.Is(err, auth.ErrDenied) || token != nil {
		t.Fatalf("got %v, %v, want ErrDenied", token, err)
	}
	var known *auth.Error
	if !errors.As(err, &known) || known.Provider == "" || known.ServiceAccount != h.Refused {
		t.Errorf("the error names neither the provider nor the ServiceAccount: %v", err)
	}
}

func (h *Harness) testMalformed(t *testing.T) {
	if h.Malformed.Name == "" {
		return
	}
	before := h.calls()
	token, err := h.get(t.Context(), h.New(t), h.Malformed)
	if !errors.Is(err, auth.ErrMisconfigured) || token != nil {
		t.Errorf("got %v, %v, want ErrMisconfigured", token, err)
	}
	if n := h.calls() - before; n != 0 {
		t.Errorf("the service was called %d times", n)
	}
}

// testCallersIdentity passes annotations of the malformed ServiceAccount as the caller's, along with the good one.
func (h *Harness) testCallersIdentity(t *testing.T) {
	if h.Malformed.Name == "" {
		return
	}
	before, callers := h.calls(), h.serviceAccount(t, h.Malformed).Annotations
	token, err := auth.GetAccessToken(t.Context(), h.New(t), h.ask(auth.WithAnnotations(callers))...)
	if !errors.Is(err, auth.ErrMisconfigured) || token != nil || !strings.Contains(err.Error(), "of the caller's identity") {
		t.Errorf("got %v, %v, want ErrMisconfigured that says %q, see Options.CallersIdentity", token, err, "of the caller's identity")
	}
	if n := h.calls() - before; n != 0 {
		t.Errorf("the service was called %d times", n)
	}
	own := h.serviceAccount(t, h.Good).Annotations
	if _, err := auth.GetAccessToken(t.Context(), h.New(t), h.ask(auth.WithAnnotations(own))...); err != nil {
		t.Errorf("with the ServiceAccount's own annotations as the caller's: %v", err)
	}
}

func (h *Harness) testBroken(t *testing.T, reason auth.Reason) {
	if h.Break == nil {
		return
	}
	h.Break(t, reason)
	token, err := h.get(t.Context(), h.New(t), h.Good)
	if !errors.Is(err, reason) || token != nil {
		t.Errorf("got %v, %v, want %v", token, err, reason)
	}
	if err != nil && strings.Contains(err.Error(), "eyJ") {
		t.Errorf("the error holds a token: %v", err)
	}
}

func (h *Harness) testCancel(t *testing.T) {
	if h.Break == nil {
		return
	}
	h.cancelled(t, "access token", func(ctx context.Context) error {
		_, err := h.get(ctx, h.New(t), h.Good)
		return err
	})
}

func (h *Harness) cancelled(t *testing.T, what string, get func(context.Context) error) {
	t.Helper()
	h.Break(t, Hang)
	ctx, cancel := context.WithCancel(t.Context())
	before := h.calls()
	go func() {
		// The call is under way as soon as the service has seen it.
		for h.calls() == before && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	err := get(ctx)
	cancel()
	if !errors.Is(err, context.Canceled) || !errors.Is(err, auth.ErrUnavailable) {
		t.Errorf("%s: got %v, want the context's error in an ErrUnavailable", what, err)
	}
}
