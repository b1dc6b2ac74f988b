package optimistic_test

import (
	"context"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/internal/optimistic"
	"github.com/workloadid/workloadid/internal/testing/slowserver"
)

func budget() *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}
}

// set writes a condition.
func set(ctx context.Context, c client.Client, object *policyv1.PodDisruptionBudget, condition string) error {
	return optimistic.PatchStatus(ctx, c, object, func() bool {
		return meta.SetStatusCondition(&object.Status.Conditions,
			metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: "R"})
	})
}

// The conditions are an atomic list here: a writer that does not know those of
// others would delete them.
func TestPatchStatusKeepsWhatOthersWrite(t *testing.T) {
	writes := 0
	count := interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object,
		p client.Patch, opts ...client.SubResourcePatchOption) error {
		writes++
		return c.SubResource(sub).Patch(ctx, o, p, opts...)
	}}
	c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(budget()).WithStatusSubresource(budget()).
		WithInterceptorFuncs(count).Build()
	ours, theirs := budget(), budget()
	for _, object := range []*policyv1.PodDisruptionBudget{ours, theirs} {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		object    *policyv1.PodDisruptionBudget
		condition string
		writes    int
	}{
		{theirs, "A", 1},
		{ours, "B", 3}, // one of them refused
		{ours, "B", 3},
		{ours, "C", 4}, // it knows the new resourceVersion
	} {
		if err := set(t.Context(), c, step.object, step.condition); err != nil || writes != step.writes {
			t.Errorf("condition %s: %d writes, want %d; error %v", step.condition, writes, step.writes, err)
		}
	}
	err := c.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs)
	if err != nil || len(theirs.Status.Conditions) != 3 {
		t.Errorf("conditions %+v, %v", theirs.Status.Conditions, err)
	}
}

func TestPatchStatusReportsATimeout(t *testing.T) {
	slowserver.TestObject(t, scheme.Scheme, budget(), func(c client.WithWatch) error {
		object := budget()
		object.ResourceVersion = "1"
		return set(t.Context(), c, object, "A")
	})
}
