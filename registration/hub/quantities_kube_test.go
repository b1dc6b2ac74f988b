package hub_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/regtest"
)

// Kubernetes' parser computes some quantities for minutes, or overflows into
// one that it does. The pattern of a released hub accepts them.
func TestQuantitiesOfAReleasedHub(t *testing.T) {
	k := startReleased(t)
	stop := k.run(t, k.controllerConfig(), 4, newHubDriver("one", driverAnnotation))
	defer stop()
	agent := k.accepted(t, "quantities")
	report := func(c client.Client, field string, value any, dryRun ...string) error {
		body, err := json.Marshal(map[string]any{"status": map[string]any{field: map[string]any{"a.example/b": value}}})
		regtest.Must(t, err)
		return c.Status().Patch(t.Context(), newCluster("quantities"), client.RawPatch(types.MergePatchType, body),
			&client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{DryRun: dryRun}})
	}
	const before = "1e-99999999"
	for _, field := range []string{"capacity", "allocatable"} {
		for _, value := range []any{"0", "8", 8, "1500m", "16Gi", "128974848", "12e6", "1E-3", "0.5", "1.5Ti", "3u", "7n"} {
			if err := report(agent, field, value, "All"); err != nil {
				t.Errorf("%s %v: %.300v", field, value, err)
			}
		}
		for _, value := range []string{before, "1e3000000000", "1E-100", strings.Repeat("1", 33)} {
			if err := report(agent, field, value, "All"); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), value) {
				t.Errorf("%s %s: %.300v, want a refusal that quotes it", field, value, err)
			}
		}
		k.Step(field+" that was stored before", func(t *testing.T) {
			regtest.Must(t, errors.Join(report(k.Admin, field, before), report(agent, field, before),
				agent.Patch(t.Context(), newCluster("quantities"),
					client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"`+field+`"}}}`)))))
			if err := report(agent, field, "1e-88888888"); !apierrors.IsInvalid(err) {
				t.Errorf("another one: %.300v", err)
			}
		})
	}
}
