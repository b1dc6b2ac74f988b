package aws_test

import (
	"context"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/testworld"
)

// report is what a controller with an API of its own would do with a condition.
func (r *Reconciler) report(ctx context.Context, obj *corev1.ConfigMap, identity string) error {
	if obj.Data["identity"] == identity {
		return nil
	}
	patch := client.MergeFrom(obj.DeepCopy())
	obj.Data["identity"] = identity
	return r.Patch(ctx, obj, patch)
}

func TestReconciler(t *testing.T) {
	config := func(name, serviceAccount string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: name},
			Data: map[string]string{"serviceAccountName": serviceAccount, "region": "eu-central-1"}}
	}
	w := newWorld(t, config("good", "app"), config("bad", "thief"), config("none", "nobody"), config("default", ""), testworld.ServiceAccount("tenant-a", "thief", aws.RoleARNAnnotation, role("tenant-b")))
	tokens, err := cache.NewTokenCache(10)
	if err != nil {
		t.Fatal(err)
	}
	defer tokens.Close()
	r := &Reconciler{Client: w.client, AWS: &aws.Provider{}, Tokens: tokens, HTTPClient: w.cloud.Client(), Options: []auth.Option{auth.WithHTTPClient(w.cloud.Client()),
		auth.WithSettings(&auth.Settings{ObjectLevelWorkloadIdentity: true, DefaultServiceAccount: "app"})}}
	for name, want := range map[string]string{"good": "assumed-role/tenant-a/tenant-a.app", "default": "assumed-role/tenant-a/tenant-a.app",
		"bad": "denied", "none": "not found"} {
		key := client.ObjectKey{Namespace: "tenant-a", Name: name}
		if result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil || result.RequeueAfter == 0 {
			t.Errorf("%s: %+v, %v", name, result, err)
		}
		var obj corev1.ConfigMap
		if err := w.client.Get(t.Context(), key, &obj); err != nil || !strings.Contains(obj.Data["identity"], want) {
			t.Errorf("%s: %q, %v", name, obj.Data["identity"], err)
		}
	}
}

// The README shows the reconciler as it is compiled here.
func TestReadmeShowsTheReconciler(t *testing.T) {
	source, err := os.ReadFile("example_reconciler_test.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(source), "// Reconciler finds")
	code = "// Reconciler finds" + code
	if !strings.Contains(string(readme), "```go\n"+code+"```") {
		t.Error("README.md differs from example_reconciler_test.go")
	}
}
