package issuer

import (
	"context"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// The check requests a longer token than the maximum. The API server has to
// shorten it.
func TestCheckLifetime(t *testing.T) {
	for name, tc := range map[string]struct {
		grants time.Duration
		fails  bool
	}{
		"maximum of the API server": {grants: 2 * time.Hour},
		"shorter maximum":           {grants: time.Hour},
		"longer maximum":            {grants: 2*time.Hour + time.Minute, fails: true},
		"no maximum":                {grants: 1000 * time.Hour, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}}
			tokens := testenv.Issuer(t).Wrap(fake.NewClientBuilder().WithObjects(sa).Build())
			x := &verifier{Verification: Verification{MaxTokenLifetime: 2 * time.Hour}}
			x.kube = interceptor.NewClient(tokens, interceptor.Funcs{SubResourceCreate: func(ctx context.Context,
				c client.Client, name string, sa, sub client.Object, opts ...client.SubResourceCreateOption) error {
				if request, ok := sub.(*authenticationv1.TokenRequest); ok {
					*request.Spec.ExpirationSeconds = min(*request.Spec.ExpirationSeconds, int64(tc.grants/time.Second))
				}
				return c.SubResource(name).Create(ctx, sa, sub, opts...)
			}})
			x.checkLifetime(t.Context())
			if len(x.checks) != 1 || x.checks[0].Skipped != "" || x.checks[0].Failed() != tc.fails {
				t.Errorf("got %+v, want one check that fails: %t", x.checks, tc.fails)
			}
		})
	}
}
