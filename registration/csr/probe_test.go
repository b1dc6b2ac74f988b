package csr_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/csr"
)

func TestProbeOfAHubThatDoesNotSign(t *testing.T) {
	for name, row := range map[string]struct {
		failed certificatesv1.CertificateSigningRequestCondition // by the signer
		want   string
		after  time.Duration
	}{
		"no signer": {want: "csrsigning", after: 30 * time.Second},
		"the signer fails, as on EKS": {certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "SignerValidationFailure"},
			"SignerValidationFailure", 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithScheme(regtest.Scheme(t)).
				WithStatusSubresource(&certificatesv1.CertificateSigningRequest{}).
				WithInterceptorFuncs(interceptor.Funcs{SubResourceUpdate: func(ctx context.Context, c client.Client, _ string,
					o client.Object, opts ...client.SubResourceUpdateOption) error {
					if request, ok := o.(*certificatesv1.CertificateSigningRequest); ok && row.failed.Type != "" {
						request.Status.Conditions = append(request.Status.Conditions, row.failed)
					}
					return c.Status().Update(ctx, o, opts...)
				}}).Build()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				err := csr.Probe(t.Context(), c)
				if !errors.Is(err, csr.ErrUnsupported) || !strings.Contains(err.Error(), row.want) {
					t.Errorf("error %v, want ErrUnsupported that says %q", err, row.want)
				}
				if took := time.Since(start); took != row.after {
					t.Errorf("it took %s, want %s", took, row.after)
				}
			})
			wantNoProbe(t, c)
		})
	}
}
