package internal_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/internal/testing/slowserver"
	"github.com/workloadid/workloadid/registration/internal"
	"github.com/workloadid/workloadid/registration/ocm"
)

func TestSetConditionReportsATimeout(t *testing.T) {
	cluster := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster1"}}
	slowserver.TestObject(t, regtest.Scheme(t), cluster, func(c client.WithWatch) error {
		return internal.SetCondition(t.Context(), c, cluster.DeepCopy(),
			metav1.Condition{Type: ocm.ConditionHubAccepted, Status: metav1.ConditionFalse, Reason: ocm.ReasonHubDenied})
	})
}
