package csr_test

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm"
)

// A record of an agent whose request was denied would lock out the right one.
// Only an API server tells in a dry run that the request is decided.
func TestApproveRecordsNothingForADecidedRequest(t *testing.T) {
	w := regtest.NewHub(t, kubetest.Start(t)) // no hub runs
	regtest.Ask(t, w.Admin, w.Admin, "cluster1", "agent1")
	requests, err := csr.List(t.Context(), w.Admin, "cluster1", (*csr.Request).IsPending)
	regtest.Must(t, err)
	request := requests[0]
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: registration.ClusterRoleName("cluster1"),
		Labels:      map[string]string{ocm.ClusterNameLabel: "cluster1"},
		Annotations: map[string]string{ocm.AgentAnnotation: "agent0"}}}
	regtest.Must(t, w.Admin.Create(t.Context(), role))
	for _, row := range []struct {
		name, reason string
		decide       func() error
	}{
		{"denied", string(metav1.StatusReasonConflict), func() error {
			return request.Deny(t.Context(), w.Admin, "not ours")
		}},
		{"deleted", string(metav1.StatusReasonNotFound), func() error {
			return w.Admin.Delete(t.Context(), request.Object.DeepCopy())
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			regtest.Must(t, row.decide())
			if err := request.Approve(t.Context(), w.Admin, "by a person"); string(apierrors.ReasonForError(err)) != row.reason {
				t.Errorf("error %v, want %s", err, row.reason)
			}
			have, err := registration.GetClusterRole(t.Context(), w.Admin, "cluster1")
			regtest.Must(t, err)
			if got := csr.RecordIn(have, "cluster1"); got.Agent != "agent0" {
				t.Errorf("recorded %+v, want agent0", got)
			}
		})
	}
}
