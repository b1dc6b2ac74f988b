package lenient_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/workloadid/workloadid/registration/ocm"
)

// withTime is a ManagedCluster with a time in its taint and its condition.
func withTime(at string) string {
	return fmt.Sprintf(
		`{"metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"hubAcceptsClient": true,
		"taints": [{"key": "a", "effect": "NoSelect", "timeAdded": %[1]s}]},
		"status": {"conditions": [{"type": "A", "status": "True", "lastTransitionTime": %[1]s}],
		"version": {"kubernetes": "v1"}}}`, at)
}

func TestListSurvivesTimes(t *testing.T) {
	for _, text := range badTimes() {
		at, _ := json.Marshal(text) // a string
		t.Run(text, func(t *testing.T) {
			list := &ocm.ManagedClusterList{}
			data := fmt.Sprintf(`{"items": [%s, {"metadata": {"name": "b"}}]}`, withTime(string(at)))
			if err := utiljson.Unmarshal([]byte(data), list); err != nil || len(list.Items) != 2 {
				t.Fatalf("%v, %d items", err, len(list.Items))
			}
			c := list.Items[0]
			if !c.Spec.HubAcceptsClient || c.Status.Version.Kubernetes != "v1" || c.Spec.Taints[0].TimeAdded != text {
				t.Errorf("the rest is %+v", c)
			}
			if got := c.Status.Conditions[0]; got.Status != metav1.ConditionTrue ||
				!got.LastTransitionTime.Equal(new(metav1.Unix(0, 0))) {
				t.Errorf("the condition is %+v", got)
			}
			if zero := strings.HasPrefix(text, "0001"); zero != (c.Unreadable == "") {
				t.Errorf("the problem is %q", c.Unreadable)
			}
			if b := list.Items[1]; b.Unreadable != "" || b.Name != "b" {
				t.Errorf("the other item is %+v", b)
			}
		})
	}
}

func TestReadableTimesStay(t *testing.T) {
	c := &ocm.ManagedCluster{}
	if err := json.Unmarshal([]byte(withTime(`"2026-01-01T00:00:00+01:00"`)), c); err != nil {
		t.Fatal(err)
	}
	want := time.Date(2025, 12, 31, 23, 0, 0, 0, time.UTC)
	if got := c.Status.Conditions[0].LastTransitionTime; !got.Time.Equal(want) || c.Unreadable != "" {
		t.Errorf("%s, %q", got, c.Unreadable)
	}
}

func TestOtherValuesStayZero(t *testing.T) {
	for name, tc := range map[string]struct{ data, want string }{
		"a number that is too large": {`{"spec": {"leaseDurationSeconds": 1e21, "hubAcceptsClient": true}}`,
			"leaseDurationSeconds"},
		"base64 that is none": {
			`{"spec": {"managedClusterClientConfigs": [{"caBundle": "*"}], "hubAcceptsClient": true}}`, "base64"},
		"a number that is no float": {`{"spec": {"leaseDurationSeconds": 1e400, "hubAcceptsClient": true}}`, "1e400"},
		"a list where a text is expected": {
			`{"status": {"conditions": [{"type": ["a"]}]}, "spec": {"hubAcceptsClient": true}}`, "type"},
		"an object in place of a list": {`{"status": {"conditions": {}}, "spec": {"hubAcceptsClient": true}}`,
			"conditions"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &ocm.ManagedCluster{Spec: ocm.ManagedClusterSpec{LeaseDurationSeconds: 1}}
			if err := json.Unmarshal([]byte(tc.data), c); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(c.Unreadable, tc.want) || !c.Spec.HubAcceptsClient || c.Spec.LeaseDurationSeconds != 0 {
				t.Errorf("%q, %+v", c.Unreadable, c.Spec)
			}
		})
	}
}

func TestInvalidMetadataIsAnError(t *testing.T) {
	for _, data := range []string{`{"metadata": {"creationTimestamp": "x"}, "spec": {"hubAcceptsClient": true}}`,
		`{"spec"`} {
		c := &ocm.ManagedCluster{}
		if err := c.UnmarshalJSON([]byte(data)); err == nil {
			t.Errorf("%s is read as %+v", data, c)
		}
	}
}

func TestProblemIsBounded(t *testing.T) {
	c := &ocm.ManagedCluster{}
	at := `"2026-01-01T00:00:00Zt` + strings.Repeat("ä", 1<<20) + `"`
	if err := json.Unmarshal([]byte(withTime(at)), c); err != nil || c.Unreadable == "" || len(c.Unreadable) > 2000 {
		t.Errorf("%v, %d bytes", err, len(c.Unreadable))
	}
}

// The doctor converts objects that it reads without a type.
func TestConvertedObjectSurvives(t *testing.T) {
	var object map[string]any
	if err := utiljson.Unmarshal([]byte(withTime(`"2026-01-01t00:00:00z"`)), &object); err != nil {
		t.Fatal(err)
	}
	c := &ocm.ManagedCluster{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, c); err != nil {
		t.Fatal(err)
	}
	if c.Unreadable == "" || meta.FindStatusCondition(c.Status.Conditions, "A") == nil {
		t.Errorf("read as %+v", c)
	}
}
