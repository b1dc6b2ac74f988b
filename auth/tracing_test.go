package auth_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/testing/spantest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// What is not in the cache records spans: the TokenRequest in its exchange,
// then what is derived. A hit records none, and allocates nothing.
func TestSpans(t *testing.T) {
	k8s, provider, spans := newCluster(), newClouds(), &spantest.Recorder{}
	key := k8s.create("tenant-a", "app", map[string]string{"subject": "a"})
	opts := []auth.Option{auth.WithServiceAccount(key, k8s), testenv.Cached(t, "tenant-a"),
		auth.WithTracerProvider(spans)}
	attributes := func(operation string) string {
		return " workloadid.provider=exchange workloadid.operation=" + operation +
			" k8s.namespace.name=tenant-a workloadid.serviceaccount=app workloadid.identity="
	}
	for _, tc := range []struct {
		name string
		get  func() error
		want []string
	}{
		{"access token", func() error { _, err := auth.GetAccessToken(t.Context(), provider, opts...); return err },
			[]string{"Exchange/TokenRequest" + attributes("get access token"), "Exchange" + attributes("get access token")}},
		{"registry", func() error {
			_, err := auth.GetArtifactRegistryCredentials(t.Context(), provider, "r.example.com/a", opts...)
			return err
		},
			[]string{"Exchange/TokenRequest" + attributes("get artifact registry credentials"),
				"Exchange" + attributes("get artifact registry credentials"),
				"Derive" + attributes("get artifact registry credentials")}},
		{"source", func() error {
			_, err := auth.GetAccessToken(t.Context(), provider, append(opts, auth.WithSubjectIssuer(&subjects{key: "s"}))...)
			return err
		}, []string{"Exchange/SubjectToken" + attributes("get access token"), "Exchange" + attributes("get access token")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, want := range [][]string{tc.want, nil} {
				if err := tc.get(); err != nil {
					t.Fatal(err)
				}
				if got := spans.Ended(); !slices.Equal(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
			}
		})
	}
	t.Run("a hit allocates little", func(t *testing.T) {
		own := []auth.Option{testenv.Cached(t, "tenant-a"), auth.WithTracerProvider(spans)}
		get := func() {
			if _, err := auth.GetAccessToken(t.Context(), provider, own...); err != nil {
				t.Error(err)
			}
		}
		get()
		if n := testing.AllocsPerRun(100, get); n >= 1 {
			t.Errorf("a hit makes %v allocations", n)
		}
	})
}

// Spans of failures have the error's text and the Reason.
func TestSpansOfFailures(t *testing.T) {
	for name, tc := range map[string]struct {
		set  func(*cluster, *clouds)
		want []string
	}{
		"TokenRequest": {func(k *cluster, _ *clouds) {
			k.fail(apierrors.NewTooManyRequests("slow down", 1))
		}, []string{"Exchange/TokenRequest ", "Exchange "}},
		"exchange": {func(_ *cluster, c *clouds) {
			c.mint = func(_ context.Context, jwt string) (auth.Token, error) {
				return nil, &auth.Error{Reason: auth.ErrThrottled, Message: "slow down, " + jwt}
			}
		}, []string{"Exchange "}},
		"derived": {func(_ *cluster, c *clouds) {
			c.newToken = func(string, []auth.Token) error { return &auth.Error{Reason: auth.ErrThrottled, Message: "slow down"} }
		}, []string{"Derive "}},
		"another error": {func(_ *cluster, c *clouds) {
			c.newToken = func(string, []auth.Token) error { return errors.New("refused: Bearer " + canary) }
		}, []string{"Derive "}},
	} {
		t.Run(name, func(t *testing.T) {
			k8s, provider, spans := newCluster(), newClouds(), &spantest.Recorder{}
			key := k8s.create("tenant-a", "app", nil)
			tc.set(k8s, provider)
			_, err := auth.GetArtifactRegistryCredentials(t.Context(), provider, "r.example.com/a",
				auth.WithServiceAccount(client.ObjectKey(key), k8s),
				auth.WithTracerProvider(spans), testenv.Owner("tenant-a"))
			if err == nil {
				t.Fatal("the call succeeded")
			}
			reason := string(auth.ErrThrottled)
			if name == "another error" {
				reason = string(auth.ErrUnavailable)
			}
			failed := slices.DeleteFunc(spans.Ended(), func(s string) bool { return !strings.Contains(s, "error: ") })
			if len(failed) != len(tc.want) {
				t.Fatalf("got %q", failed)
			}
			for i, want := range tc.want {
				if !strings.HasPrefix(failed[i], want) || !strings.Contains(failed[i], " error.type="+reason+" error: ") ||
					strings.Contains(failed[i], canary) {
					t.Errorf("got %q, want %s…, %s", failed[i], want, reason)
				}
			}
		})
	}
}
