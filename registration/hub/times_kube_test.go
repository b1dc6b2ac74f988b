package hub_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/ocm"
)

// badTimes are values that the format date-time allows, and that Go cannot
// read, or cannot write again.
func badTimes() []string {
	return []string{`"2026-01-01t00:00:00z"`, `"2026-01-01T00:00:00+99:99"`, `"2026-01-01T00:00:00+24:30"`,
		`"2026-01-01T00:00:00x5Z"`,
		`"2026-01-01T00:00:00Ztx"`, `"9999-12-31T23:59:59-01:00"`, `"0000-01-01T00:00:00+01:00"`, `[]`}
}

// withCondition is a patch of a status, whose conditions it replaces but for
// that of the hub.
func withCondition(t *testing.T, o *unstructured.Unstructured, at string) client.Patch {
	t.Helper()
	all := append(hubConditions(o.Object), map[string]any{"type": "A", "status": "True", "reason": "A", "message": "",
		"lastTransitionTime": json.RawMessage(at)})
	body, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": all}})
	regtest.Must(t, err)
	return client.RawPatch(types.MergePatchType, body)
}

// withTaint is a patch of a spec.
func withTaint(at string) string {
	return fmt.Sprintf(`{"spec": {"taints": [{"key": "a", "effect": "NoSelect", "timeAdded": %s}]}}`, at)
}

func TestTimesThatGoCannotRead(t *testing.T) {
	k := startReleased(t)
	stop := k.run(t, k.controllerConfig(), 4, newHubDriver("one", driverAnnotation))
	agent := k.accepted(t, "times")
	cluster, addOn := newCluster("times"), newAddOn("v1alpha1", "times")
	regtest.Must(t, k.Admin.Create(t.Context(), addOn))
	write := func(c client.Client, o *unstructured.Unstructured, body string, opts ...client.PatchOption) error {
		return c.Patch(t.Context(), o.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(body)), opts...)
	}
	report := func(c client.Client, o *unstructured.Unstructured, at string, dryRun ...string) error {
		if o == cluster {
			o = k.read(t, "times")
		}
		return c.Status().Patch(t.Context(), o.DeepCopy(), withCondition(t, o, at),
			&client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{DryRun: dryRun}})
	}
	k.Step("an agent writes them", func(t *testing.T) {
		for _, at := range badTimes() {
			k.Step(at, func(t *testing.T) {
				wantNoTime(t, write(agent, cluster, withTaint(at)), at)
				wantNoTime(t, report(agent, cluster, at), at)
				wantNoTime(t, report(agent, addOn, at), at)
			})
		}
		for _, at := range []string{`"2026-01-01T00:00:00Z"`, `"2026-01-01T00:00:00.5+23:59"`,
			`"2026-01-01T00:00:00,123456Z"`} {
			regtest.Must(t, errors.Join(report(agent, cluster, at, "All"), report(agent, addOn, at, "All"),
				write(agent, cluster, withTaint(at), client.DryRunAll)))
		}
		regtest.Must(t, write(agent, cluster, withTaint("null"), client.DryRunAll))
	})
	stop()
	const before, other = `"2026-01-01t00:00:00z"`, `"2026-01-02t00:00:00z"`
	regtest.Must(t, errors.Join(write(k.Admin, cluster, withTaint(before)), report(k.Admin, cluster, before),
		report(k.Admin, addOn, before)))
	k.Step("one was stored before", func(t *testing.T) {
		regtest.Must(t, errors.Join(write(agent, cluster, `{"metadata": {"annotations": {"a": "b"}}}`),
			write(agent, cluster, withTaint(before)), report(agent, cluster, before), report(agent, addOn, before)))
		wantNoTime(t, write(agent, cluster, withTaint(other)), other)
		wantNoTime(t, report(agent, cluster, other), other)
		wantNoTime(t, report(agent, addOn, other), other)
		if c := k.Cluster("times"); !strings.Contains(c.Unreadable, "2026-01-01t00:00:00z") || !c.Spec.HubAcceptsClient {
			t.Errorf("read as %q, %v", c.Unreadable, c.Spec)
		}
	})
	regtest.Must(t, errors.Join(setAccepted(t, k.Admin, "times", false),
		k.Admin.Create(t.Context(), managedCluster("beside", accept))))
	k.run(t, k.controllerConfig(), 4, newHubDriver("one", driverAnnotation))
	k.Step("a hub that starts accepts other clusters", func(*testing.T) {
		k.AwaitReason("beside", ocm.ConditionHubAccepted, ocm.ReasonHubAccepted)
	})
	k.Step("the cluster is denied", func(*testing.T) {
		k.AwaitRevoked("times")
		k.AwaitReason("times", ocm.ConditionHubAccepted, ocm.ReasonHubDenied)
	})
	k.Step("the cluster is deleted", func(t *testing.T) { k.remove(t, "times") })
}

func wantNoTime(t *testing.T, err error, at string) {
	t.Helper()
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "is not in RFC 3339") ||
		!strings.Contains(err.Error(), strings.Trim(at, `"[]`)) {
		t.Errorf("the error is %.300v", err)
	}
}
