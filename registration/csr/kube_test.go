package csr_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/csr"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(kubetest.Main(m).Run())
}

func TestProbe(t *testing.T) {
	cluster := kubetest.StartSecond(t) // without a controller manager
	left := func(t *testing.T, c client.Client) {
		t.Helper()
		var list certificatesv1.CertificateSigningRequestList
		regtest.Must(t, c.List(t.Context(), &list))
		for _, item := range list.Items {
			if strings.HasPrefix(item.Name, "workloadid-probe-") {
				t.Errorf("the probe left %s", item.Name)
			}
		}
	}
	t.Run("a hub that does not sign", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // all of it
		defer cancel()
		if err := csr.Probe(ctx, cluster.Client()); !errors.Is(err, csr.ErrUnsupported) ||
			!strings.Contains(err.Error(), "csrsigning") {
			t.Errorf("error %v", err)
		}
		left(t, cluster.Client())
	})
	t.Run("a hub whose signer fails, as on EKS", func(t *testing.T) {
		failing := interceptor.NewClient(regtest.NewClient(t, cluster.Config()),
			interceptor.Funcs{SubResourceUpdate: func(ctx context.Context, c client.Client, part string, obj client.Object,
				opts ...client.SubResourceUpdateOption) error {
				if err := c.SubResource(part).Update(ctx, obj, opts...); err != nil {
					return err
				}
				request, ok := obj.(*certificatesv1.CertificateSigningRequest)
				if !ok {
					return errors.New("no request")
				}
				request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
					Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "SignerValidationFailure",
					Message: "not on this hub"})
				return c.Status().Update(ctx, request)
			}})
		if err := csr.Probe(t.Context(), failing); !errors.Is(err, csr.ErrUnsupported) ||
			!strings.Contains(err.Error(), "SignerValidationFailure") {
			t.Errorf("error %v", err)
		}
		left(t, cluster.Client())
	})
	t.Run("a user who may not approve", func(t *testing.T) {
		user := regtest.NewClient(t,
			cluster.User(t, "prober", "",
				rbacv1.PolicyRule{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"},
					Verbs: []string{"get", "create", "delete"}}))
		if err := csr.Probe(t.Context(), user); !apierrors.IsForbidden(err) || errors.Is(err, csr.ErrUnsupported) {
			t.Errorf("error %v", err)
		}
		left(t, cluster.Client())
	})
	t.Run("a hub that signs", func(t *testing.T) {
		signs := kubetest.Start(t)
		signs.ControllerManager(t, "csrsigning")
		if err := csr.Probe(t.Context(), signs.Client()); err != nil {
			t.Error(err)
		}
		left(t, signs.Client())
	})
}
