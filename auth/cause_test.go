package auth_test

import (
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// Programs decide by the cause, never by the message.
func TestCauses(t *testing.T) {
	claim := func(name string, value any) func(map[string]any) { return func(c map[string]any) { c[name] = value } }
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts"}, "app", errors.New("no rule"))
	none := client.ObjectKey{Namespace: "tenant-a", Name: "missing"}
	for name, tc := range map[string]struct {
		change func(*cluster)
		opts   []auth.Option
		want   provider.Cause
	}{
		"ServiceAccount not found": {opts: []auth.Option{auth.WithServiceAccount(none, newCluster())},
			want: provider.CauseServiceAccountNotFound},
		"token request not allowed": {change: func(c *cluster) {
			c.requestErr = forbidden
		}, want: provider.CauseTokenRequestForbidden},
		"ServiceAccount not readable": {change: func(c *cluster) { c.readErr = forbidden }},
		"token of the API server": {change: func(c *cluster) {
			c.claims = claim("iss", "exchange")
		}, want: provider.CauseAPIServerAudience},
		"token expired": {change: func(c *cluster) {
			c.claims = claim("exp", time.Now().Add(-time.Minute).Unix())
		}, want: provider.CauseTokenExpired},
		"another subject": {change: func(c *cluster) { c.claims = claim("sub", "else") }},
		"audience not listed": {opts: []auth.Option{auth.WithAudiences("vault")},
			want: provider.CauseAudienceNotAllowed},
		"audience of the API server": {opts: []auth.Option{auth.WithAudiences("kubernetes"),
			auth.WithPolicy(auth.Policy{AllowAnyAudience: true})}, want: provider.CauseAPIServerAudience},
		"ServiceAccount of another one": {opts: []auth.Option{testenv.Owner("tenant-b")}},
	} {
		t.Run(name, func(t *testing.T) {
			k8s := newCluster()
			key := k8s.create("tenant-a", "app", nil)
			if tc.change != nil {
				tc.change(k8s)
			}
			opts := append([]auth.Option{auth.WithServiceAccount(key, k8s), testenv.Owner("tenant-a")}, tc.opts...)
			_, err := auth.GetAccessToken(t.Context(), &exchange{}, opts...)
			var e *auth.Error
			if !errors.As(err, &e) || e.Cause != tc.want {
				t.Errorf("got %+v, want the cause %q", e, tc.want)
			}
		})
	}
}
