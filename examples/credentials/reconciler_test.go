package credentials

import (
	"context"
	"strings"
	"testing"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/document"
)

var report = ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "tenant-a", Name: "report"}}

// The services verify each credential, and the next reconciliation takes all of
// them from the cache.
func TestReconcilerGetsSixCredentials(t *testing.T) {
	r, cloud := newEnvironment(t)
	used := 0
	r.Use = func(_ context.Context, c *Credentials) error {
		used++
		if c.AWS == nil || c.Azure == nil || c.Google == nil || c.OAuth == nil || c.EKS == nil {
			t.Errorf("got %+v", c)
		}
		login, err := c.ECR.Authorization()
		if err != nil {
			return err
		}
		if id, ok := cloud.AWS().ValidRegistryPassword("123456789012.dkr.ecr.eu-central-1.amazonaws.com", login.Username,
			login.Password); !ok || !strings.Contains(id.ARN, "tenant-a") {
			t.Errorf("the registry refuses %q: %+v", login.Username, id)
		}
		return nil
	}
	for range 2 {
		if result, err := r.Reconcile(t.Context(), report); err != nil || result.RequeueAfter != time.Hour {
			t.Fatalf("%+v, %v", result, err)
		}
	}
	if n := cloud.Calls("sts", "AssumeRoleWithWebIdentity"); used != 2 || n == 0 || n > 2 {
		t.Errorf("used %d times, with %d calls to STS", used, n)
	}
}

func TestPageShowsCompiledCode(t *testing.T) {
	page := document.Read(t, "docs/credentials.md")
	page.Shows("reconciler.go", "// Reconciler gets")
	page.Shows("environment_test.go", "// newEnvironment returns")
}
