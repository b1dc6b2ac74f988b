package hub_test

import (
	"crypto/x509"
	"encoding/pem"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm"
)

// joining is a cluster that joins whole: hub, driver csr and agent on two API
// servers, with exactly the RBAC of the manifests. Tests of one of the three
// begin with what this one leaves.
type joining struct {
	*regtest.Member
	ahead time.Duration // of the agent's clock
	said  *regtest.Recorder
}

// newJoining makes a cluster whose bootstrap credential is a token of the group
// that BootstrapRBAC names. Its user is "system:bootstrap:<id>".
func newJoining(w *regtest.Environment, name, id string) *joining {
	w.T.Helper()
	const half = "0123456789abcdef"
	regtest.Must(w.T, w.Admin.Create(w.T.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-" + id},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{"token-id": id, "token-secret": half, "usage-bootstrap-authentication": "true",
			"auth-extra-groups": registration.BootstrapGroup}}))
	j := &joining{Member: w.NewMember(name, "registration-agent")}
	j.Bootstrap = id + "." + half
	j.WriteBootstrap(w.Hub.Config().Host, w.Hub.Config().CAData)
	j.restart()
	return j
}

// restart is a new process of the agent.
func (j *joining) restart() {
	j.T.Helper()
	j.said = &regtest.Recorder{}
	j.Start(agent.Options{Driver: csr.New(csr.Options{}), Recorder: j.said, Now: func() time.Time {
		return time.Now().Add(j.ahead)
	}})
}

func (j *joining) certificate() string { j.T.Helper(); return string(j.Secret().Data["tls.crt"]) }

func (j *joining) expiry() time.Time {
	j.T.Helper()
	block, _ := pem.Decode([]byte(j.certificate()))
	if block == nil {
		j.T.Fatal("the agent has no certificate")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	regtest.Must(j.T, err)
	return leaf.NotAfter
}

// isRenewed reports whether the Lease was renewed after a time.
func (j *joining) isRenewed(since time.Time) bool {
	lease := &coordinationv1.Lease{}
	err := j.Admin.Get(j.T.Context(), client.ObjectKey{Namespace: j.Name, Name: ocm.LeaseName}, lease)
	return err == nil && lease.Spec.RenewTime.After(since)
}

func (j *joining) expectRequests(n int) {
	j.T.Helper()
	if got := len(regtest.RequestsOf(j.T, j.Admin, j.Name)); got != n {
		j.T.Errorf("the cluster made %d requests, want %d", got, n)
	}
}

// expectRevoked waits until the cluster has no access and its namespace alone
// is left. The agent then waits, keeps its certificate and requests no other.
func (j *joining) expectRevoked(requests int) {
	j.T.Helper()
	j.AwaitRevoked(j.Name)
	regtest.Must(j.T, j.Admin.Get(j.T.Context(), client.ObjectKey{Name: j.Name}, &corev1.Namespace{}))
	own := j.Own()
	kubetest.Eventually(j.T, "the API server refuses the agent", func() bool {
		return apierrors.IsForbidden(own.Get(j.T.Context(), client.ObjectKey{Name: j.Name}, &ocm.ManagedCluster{})) &&
			apierrors.IsForbidden(own.Get(j.T.Context(), client.ObjectKey{Namespace: j.Name, Name: ocm.LeaseName},
				&coordinationv1.Lease{}))
	})
	before := j.Secret().ResourceVersion
	j.restart()
	j.Until("the agent says that it waits", func() bool {
		return j.said.Says("WaitingForAcceptance", "wid hub accept --clusters "+j.Name)
	})
	if j.Secret().ResourceVersion != before {
		j.T.Error("the Secret was written")
	}
	j.expectRequests(requests)
}

func TestJoin(t *testing.T) {
	w, said := regtest.NewWith(t, startReleased(t).Hub, kubetest.Start(t)), &regtest.Recorder{}
	w.Hub.ControllerManager(t, "csrsigning")
	w.RunHub(regtest.Certificates(said, func(o *csr.HubDriverOptions) {
		o.AutoApproveUsers = []string{"system:bootstrap:auto00"}
	}))
	j := newJoining(w, "join1", "join01")
	w.Step("an administrator accepts", func(t *testing.T) {
		defer j.Run()()
		kubetest.Eventually(t, "the request waits", func() bool {
			return j.said.Says("ClientCertificateNotApproved")
		})
		w.SetAccepted("join1", true)
		kubetest.Eventually(t, "the cluster joins", func() bool { return j.isRenewed(time.Time{}) && j.Joined() })
		j.expectRequests(1)
		j.ExpectAgent(j.Own(), "join1", string(j.Secret().Data["agent-name"]))
	})
	w.Step("a listed user needs no administrator", func(*testing.T) {
		auto := newJoining(w, "join10", "auto00")
		auto.Until("the cluster joins", auto.Joined)
		auto.expectRequests(1)
		auto.ExpectIsolated("join1")
	})
	w.Step("the certificate is renewed", func(*testing.T) {
		first := j.certificate()
		j.ahead = time.Until(j.expiry()) - time.Minute
		j.Until("there is another certificate", func() bool { return j.certificate() != first })
		j.expectRequests(2)
		j.ahead = 0
	})
	w.Step("an administrator denies", func(*testing.T) {
		w.SetAccepted("join1", false)
		w.AwaitReason("join1", ocm.ConditionHubAccepted, ocm.ReasonHubDenied)
		j.expectRevoked(2)
	})
	w.Step("an administrator accepts again", func(*testing.T) {
		w.SetAccepted("join1", true)
		since := time.Now()
		j.ahead = time.Minute // the Lease is due
		j.Until("the Lease is renewed", func() bool { return j.isRenewed(since) })
		j.expectRequests(2)
	})
	w.Step("the cluster is deleted, and the agent creates it no second time", func(t *testing.T) {
		regtest.Must(t, w.Admin.Delete(t.Context(), w.Cluster("join1")))
		kubetest.Eventually(t, "the ManagedCluster is gone", func() bool { return w.Cluster("join1").Name == "" })
		j.expectRevoked(2)
		if w.Cluster("join1").Name != "" {
			t.Error("the agent has created the cluster again")
		}
	})
	w.Step("the agent uses all its rights to Secrets", func(t *testing.T) {
		used := map[string]bool{}
		for _, r := range w.Managed.Audit(t, "system:serviceaccount:"+j.Namespace+":registration-agent") {
			if r.Resource == "secrets" && r.Code < 300 {
				used[r.Verb] = true
			}
		}
		delete(used, "list") // only with API servers that do not stream lists
		got, want := slices.Sorted(maps.Keys(used)), []string{"create", "get", "update", "watch"}
		if !slices.Equal(got, want) {
			t.Errorf("the agent used the verbs %q, its Role has %q and list", got, want)
		}
	})
	w.Step("the rights of the manifest suffice for the hub", func(t *testing.T) {
		for _, r := range w.Hub.Audit(t, regtest.HubUser) {
			if r.Code == http.StatusForbidden {
				t.Errorf("the hub was forbidden %s %s/%s %s/%s", r.Verb, r.Resource, r.Subresource, r.Namespace, r.Name)
			}
		}
	})
}
