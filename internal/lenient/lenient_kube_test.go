package lenient_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	pods "github.com/workloadid/workloadid/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	addons "github.com/workloadid/workloadid/registration/ocm/addon/v1alpha1"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m).Run()) }

const conditions = `[{type: A, status: "True", reason: A, message: a, observedGeneration: 1, lastTransitionTime: "2026-01-01T00:00:00Z"}]`

// kind is a kind that programs decode, with an object that has all fields of
// its type.
type kind struct {
	object     client.Object
	list       client.ObjectList
	conditions *[]metav1.Condition // of the object; nil: none
	full       string
}

func cluster() kind {
	o := &ocm.ManagedCluster{}
	return kind{o, &ocm.ManagedClusterList{}, &o.Status.Conditions, `
spec:
  hubAcceptsClient: true
  leaseDurationSeconds: 60
  managedClusterClientConfigs: [{url: "https://a", caBundle: YWJj}]
  taints: [{key: a, value: a, effect: NoSelect, timeAdded: "2026-01-01T00:00:00Z"}]
status:
  version: {kubernetes: v1.36.0}
  capacity: {cpu: "1"}
  allocatable: {cpu: "1"}
  clusterClaims: [{name: a, value: a}]
  conditions: ` + conditions}
}

func newerAddOn() kind {
	o := &addon.ManagedClusterAddOn{}
	return kind{o, &addon.ManagedClusterAddOnList{}, &o.Status.Conditions, `
status:
  namespace: a
  healthCheck: {mode: Lease}
  registrations:
  - {type: kubeClient, kubeClient: {driver: token, subject: {user: a, groups: [a]}}}
  - type: customSigner
    customSigner: {signerName: example.com/a, subject: {user: a, groups: [a], organizationUnits: [a]}}
  conditions: ` + conditions}
}

func olderAddOn() kind {
	o := &addons.ManagedClusterAddOn{}
	return kind{o, &addons.ManagedClusterAddOnList{}, &o.Status.Conditions, `
spec: {}
status:
  namespace: a
  healthCheck: {mode: Lease}
  kubeClientDriver: token
  registrations: [{signerName: example.com/a, subject: {user: a, groups: [a], organizationUnit: [a]}}]
  conditions: ` + conditions}
}

func binding() kind {
	o := &pods.IAMBinding{}
	return kind{o, &pods.IAMBindingList{}, &o.Status.Conditions, `
spec:
  containers: [a]
  serviceAccountRef: {name: a}
  aws:
    roleArn: arn:aws:iam::123456789012:role/a
    externalID: ab
    durationSeconds: 3600
    sessionTags: {a: a}
    sessionPolicy: "{}"
status:
  conditions: ` + conditions}
}

func allowList() kind {
	return kind{&pods.IAMRoleAllowList{}, &pods.IAMRoleAllowListList{}, nil, `
spec: {rules: [{namespaces: [a], roles: ['*']}]}`}
}

// hostile are values that some schema accepts.
func hostile() []string {
	values := []string{"null", "true", "0", "1", "-1", "1.0", "1.5", "1e3", "1E21", "1e400", "2147483648",
		"9223372036854775808",
		"-9223372036854775809", "18446744073709551616", "[]", "{}", `["x"]`, `{"x":"y"}`, "[null]", "[{}]"}
	for _, text := range append(badTimes(), "", "x", "1", "1e3", "True", "YWJj\nYWJj", "_-8=", "YQ", "YQ=", " YWJj",
		"YR==", "1h", "9999999h", "1Ei", "1.2.3.4", "2026-01-01T00:00:00.123456789123Z", "2026-01-01T00:00:00,5Z") {
		quoted, _ := json.Marshal(text) // a string
		values = append(values, string(quoted))
	}
	return values
}

// badTimes are times that the format date-time accepts, and that Go cannot read
// or cannot write again.
func badTimes() []string {
	return []string{"2026-01-01t00:00:00z", "2026-01-01T00:00:00+99:99", "2026-01-01T00:00:00x5Z",
		"2026-01-01T00:00:00Ztx", "2026-01-01T00:00:00z",
		"9999-12-31T23:59:59-01:00", "0000-01-01T00:00:00+01:00", "0001-01-01T00:00:00Z"}
}

// Whatever value the schema of a kind accepts in any place, the object and its
// list are decoded, and its conditions can be written.
func TestValuesThatSchemasAcceptAreDecoded(t *testing.T) {
	released := func(t *testing.T, name string) string {
		t.Helper()
		crd, err := os.ReadFile("../../registration/hub/testdata/ocm/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		return string(crd)
	}
	t.Run("ours", func(t *testing.T) {
		w := newEnvironment(t, kubetest.Start(t), ocm.CRD(), addon.CRD(), pods.BindingCRD(), pods.AllowListCRD())
		for _, k := range []kind{cluster(), newerAddOn(), binding(), allowList()} {
			t.Run(fmt.Sprintf("%T", k.object), func(t *testing.T) { w.walk(t, k) })
		}
	})
	t.Run("of a released hub", func(t *testing.T) {
		w := newEnvironment(t, kubetest.StartSecond(t), released(t, "managedclusters"), released(t, "managedclusteraddons"))
		for _, k := range []kind{cluster(), olderAddOn()} {
			t.Run(fmt.Sprintf("%T", k.object), func(t *testing.T) { w.walk(t, k) })
		}
	})
}

type environment struct {
	client.Client
	namespace string
}

func newEnvironment(t *testing.T, c *kubetest.Cluster, crds ...string) *environment {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{ocm.AddToScheme, addon.AddToScheme, pods.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	config := rest.CopyConfig(c.Config())
	config.WarningHandlerWithContext = rest.NoWarnings{}
	kubetest.Apply(t, c.Client(), crds...)
	w := &environment{namespace: c.Namespace(t)}
	kubetest.Eventually(t, "the API server serves the kinds", func() bool {
		var err error
		w.Client, err = client.New(config, client.Options{Scheme: scheme})
		return err == nil && w.List(t.Context(), &ocm.ManagedClusterList{}) == nil
	})
	return w
}

// create creates an object of a kind, and returns its fields.
func (w *environment) create(t *testing.T, k kind) (metadata *metav1.PartialObjectMetadata, fields map[string]any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(k.full), &fields); err != nil {
		t.Fatal(err)
	}
	gvk, err := apiutil.GVKForObject(k.object, w.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(fields)}
	object.SetGroupVersionKind(gvk)
	object.SetName(pods.AllowListName)
	if namespaced, err := w.IsObjectNamespaced(object); err != nil {
		t.Fatal(err)
	} else if namespaced {
		object.SetNamespace(w.namespace)
	}
	kubetest.Eventually(t, "the API server serves the kind", func() bool {
		err := w.Create(t.Context(), object.DeepCopy())
		if err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
			t.Fatal(err)
		}
		return err == nil
	})
	metadata = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: object.GetNamespace(),
		Name: object.GetName()}}
	metadata.SetGroupVersionKind(gvk)
	return metadata, fields
}

func (w *environment) walk(t *testing.T, k kind) {
	object, fields := w.create(t, k)
	for _, section := range slices.Sorted(maps.Keys(fields)) {
		w.mustStore(t, object, section, w.text(t, fields[section]))
	}
	w.mustDecode(t, k, object)
	wantNoZero(t, k.object)
	accepted := 0
	for _, section := range slices.Sorted(maps.Keys(fields)) {
		for _, place := range places(fields[section]) {
			for _, value := range hostile() {
				body := w.text(t, replace(fields[section], place, value))
				if w.store(t, object, section, body) != nil {
					continue
				}
				accepted++
				w.mustDecode(t, k, object)
				w.mustWrite(t, k, object)
				if t.Failed() {
					t.Fatalf("the API server accepts %s of %s as %s", section, place, value)
				}
			}
		}
		w.mustStore(t, object, section, w.text(t, fields[section]))
	}
	t.Logf("%d values accepted", accepted)
}

func (w *environment) mustDecode(t *testing.T, k kind, object client.Object) {
	t.Helper()
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(object), k.object); err != nil {
		t.Errorf("get: %v", err)
	}
	if err := w.List(t.Context(), k.list); err != nil {
		t.Errorf("list: %v", err)
	}
}

// mustWrite patches a condition as our programs do.
func (w *environment) mustWrite(t *testing.T, k kind, object client.Object) {
	t.Helper()
	if k.conditions == nil {
		return
	}
	base, _ := k.object.DeepCopyObject().(client.Object)
	meta.SetStatusCondition(k.conditions, metav1.Condition{Type: "B", Status: metav1.ConditionTrue, Reason: "B"})
	err := w.Status().Patch(t.Context(), k.object, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		t.Errorf("write a condition of %s: %v", object.GetName(), err)
	}
}

// store replaces the spec or the status. It decodes none of the answer but the
// metadata.
func (w *environment) store(t *testing.T, object *metav1.PartialObjectMetadata, section, body string) error {
	patch := client.RawPatch(types.JSONPatchType,
		fmt.Appendf(nil, `[{"op": "add", "path": "/%s", "value": %s}]`, section, body))
	if section == "status" {
		return w.Status().Patch(t.Context(), object.DeepCopy(), patch)
	}
	return w.Patch(t.Context(), object.DeepCopy(), patch)
}

func (w *environment) mustStore(t *testing.T, object *metav1.PartialObjectMetadata, section, body string) {
	t.Helper()
	if err := w.store(t, object, section, body); err != nil {
		t.Fatal(err)
	}
}

// raw marks a value that stands in the body as it is.
const raw = "raw:"

func (w *environment) text(t *testing.T, value any) string {
	t.Helper()
	body, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	begin := bytes.Index(body, []byte(`"`+raw))
	if begin < 0 {
		return string(body)
	}
	end := begin + 1
	for body[end] != '"' {
		if body[end] == '\\' {
			end++
		}
		end++
	}
	var text string
	if err := json.Unmarshal(body[begin:end+1], &text); err != nil {
		t.Fatal(err)
	}
	return string(body[:begin]) + strings.TrimPrefix(text, raw) + string(body[end+1:])
}

// places returns the paths of a value and of all below it.
func places(value any) []string {
	all := []string{""}
	add := func(key string, below any) {
		for _, p := range places(below) {
			all = append(all, "/"+key+p)
		}
	}
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			add(key, value[key])
		}
	case []any:
		for i, item := range value {
			add(fmt.Sprint(i), item)
		}
	}
	return all
}

// replace returns a copy with a raw value in one place.
func replace(value any, place, text string) any {
	if place == "" {
		return raw + text
	}
	key, below, _ := strings.Cut(place[1:], "/")
	if below != "" {
		below = "/" + below
	}
	switch value := value.(type) {
	case map[string]any:
		value = maps.Clone(value)
		value[key] = replace(value[key], below, text)
		return value
	case []any:
		all := slices.Clone(value)
		for i := range all {
			if fmt.Sprint(i) == key {
				all[i] = replace(all[i], below, text)
			}
		}
		return all
	}
	return value
}

// wantNoZero requires a value in each field of spec and status, so that a new
// field of a type is tried too.
func wantNoZero(t *testing.T, o client.Object) {
	t.Helper()
	v := reflect.ValueOf(o).Elem()
	for _, section := range []string{"Spec", "Status"} {
		if f := v.FieldByName(section); f.IsValid() {
			checkNoZero(t, section, f)
		}
	}
}

func checkNoZero(t *testing.T, path string, v reflect.Value) {
	t.Helper()
	switch v.Kind() { //nolint:exhaustive // others have nothing below
	case reflect.Pointer:
		if !v.IsNil() {
			checkNoZero(t, path, v.Elem())
		}
		return // one of several
	case reflect.Slice:
		for i := range v.Len() {
			checkNoZero(t, fmt.Sprintf("%s[%d]", path, i), v.Index(i))
		}
	case reflect.Struct:
		if _, ok := v.Interface().(metav1.Time); ok {
			break
		}
		for f, below := range v.Fields() {
			checkNoZero(t, path+"."+f.Name, below)
		}
		return
	}
	if v.IsZero() {
		t.Errorf("the object of the test has no %s", path)
	}
}
