package hubcmd

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// A hub that signs no client certificates, such as Amazon EKS, is told apart from one that cannot be asked.
func TestHubInitProbes(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := certificatesv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for want, answer := range map[string]func(*certificatesv1.CertificateSigningRequest) error{
		`warning: clusters cannot register with auth type csr: the hub does not sign client certificates: the request is Failed, reason "SignerValidationFailure"`: func(csr *certificatesv1.CertificateSigningRequest) error {
			csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
				Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "SignerValidationFailure"})
			return nil
		},
		"warning: it is not known whether the hub signs client certificates: approve CertificateSigningRequest": func(*certificatesv1.CertificateSigningRequest) error {
			return apierrors.NewForbidden(certificatesv1.Resource("certificatesigningrequests"), "x", nil)
		},
	} {
		c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&certificatesv1.CertificateSigningRequest{}).WithInterceptorFuncs(interceptor.Funcs{
			SubResourceUpdate: func(ctx context.Context, c client.Client, _ string, o client.Object, _ ...client.SubResourceUpdateOption) error {
				csr, ok := o.(*certificatesv1.CertificateSigningRequest)
				if !ok {
					return errors.New("not a request")
				}
				if err := answer(csr); err != nil {
					return err
				}
				return c.Status().Update(ctx, csr)
			}}).Build()
		var out bytes.Buffer
		cmd := NewHubInit()
		cmd.SetErr(&out)
		(&hubInit{}).probe(t.Context(), cmd, c)
		if !strings.Contains(out.String(), want) {
			t.Errorf("got %s, want %s", out.String(), want)
		}
	}
}
