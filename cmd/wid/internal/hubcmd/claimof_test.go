package hubcmd

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

func TestClaimOfAWS(t *testing.T) {
	for annotation, want := range map[string]string{"eks-managed-cluster-arn": eksManaged, "agent.open-cluster-management.io/managed-cluster-arn": eksManaged} {
		cluster := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{annotation: want}}}
		if authType, claim, err := claimOf(cluster, &rbacv1.ClusterRole{}); authType != registration.AuthTypeAWS || claim != want || err != nil {
			t.Errorf("%s: %q, %q, %v", annotation, authType, claim, err)
		}
	}
	var out strings.Builder
	if statusTable(&out, []ClusterStatus{{Name: "a", AuthType: registration.AuthTypeAWS, Claim: eksManaged}}); !strings.Contains(out.String(), eksManaged) {
		t.Error(out.String())
	}
	bad := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"eks-managed-cluster-arn": "foo"}}}
	if _, _, err := claimOf(bad, &rbacv1.ClusterRole{}); err == nil {
		t.Error("a claim that is no ARN is accepted")
	}
}
