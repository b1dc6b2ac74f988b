package doctor_test

import (
	"testing"

	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	"github.com/workloadid/workloadid/internal/annotation"
)

// A tenant chooses these names, and an administrator runs the commands.
func TestFillLeavesNamesThatAShellInterprets(t *testing.T) {
	for name, want := range map[string]string{
		"tenant-a":        "kubectl -n tenant-a",
		"a;touch x":       "kubectl -n NAMESPACE",
		"$(touch x)":      "kubectl -n NAMESPACE",
		"a' 'b":           "kubectl -n NAMESPACE",
		"a\ntouch x":      "kubectl -n NAMESPACE",
		"a|touch${IFS}x}": "kubectl -n NAMESPACE",
	} {
		t.Run(name, func(t *testing.T) {
			q := &doctor.TrustQuery{Claims: doctor.Claims{Namespace: name}}
			if got := q.Fill("kubectl -n NAMESPACE"); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// The annotation may name a pool of the tenant's own, which no grant names.
func TestFillGrantLeavesThePool(t *testing.T) {
	const pool = "projects/123456789012/locations/global/workloadIdentityPools/east"
	const text = "PROVIDER_NAME in PROJECT_ID: PRINCIPAL"
	q := &doctor.TrustQuery{Claims: doctor.Claims{Subject: "system:serviceaccount:tenant-a:app"},
		Annotations: map[string]string{annotation.GCPWorkloadIdentityProvider: pool + "/providers/east"}}
	for want, got := range map[string]string{
		pool + "/providers/east in 123456789012: principal://iam.googleapis.com/" + pool +
			"/subject/system:serviceaccount:tenant-a:app": q.Fill(text),
		"PROVIDER_NAME in PROJECT_ID: principal://iam.googleapis.com/POOL_NAME/subject/" +
			"system:serviceaccount:tenant-a:app": q.FillGrant(text),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
