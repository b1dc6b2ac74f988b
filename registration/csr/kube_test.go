package csr_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/csr"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(kubetest.Main(m).Run())
}

func TestProbe(t *testing.T) {
	cluster := kubetest.Start(t)
	cluster.ControllerManager(t, "csrsigning")
	t.Run("a user who may not approve", func(t *testing.T) {
		user := regtest.NewClient(t,
			cluster.User(t, "prober", "",
				rbacv1.PolicyRule{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"},
					Verbs: []string{"get", "create", "delete"}}))
		if err := csr.Probe(t.Context(), user); !apierrors.IsForbidden(err) || errors.Is(err, csr.ErrUnsupported) {
			t.Errorf("error %v, want Forbidden alone", err)
		}
		wantNoProbe(t, cluster.Client())
	})
	t.Run("a hub that signs", func(t *testing.T) {
		if err := csr.Probe(t.Context(), cluster.Client()); err != nil {
			t.Error(err)
		}
		wantNoProbe(t, cluster.Client())
	})
}

func wantNoProbe(t *testing.T, c client.Client) {
	t.Helper()
	var list certificatesv1.CertificateSigningRequestList
	regtest.Must(t, c.List(t.Context(), &list))
	for _, item := range list.Items {
		if strings.HasPrefix(item.Name, "workloadid-probe-") {
			t.Errorf("the probe left %s", item.Name)
		}
	}
}
