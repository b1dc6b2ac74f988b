package hub_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
)

// most is how many bytes the cache keeps of an object that a bootstrap user created.
const most = 2 << 10

// optionsOf returns the options for objects of the same type.
func optionsOf(t *testing.T, like client.Object) cache.ByObject {
	t.Helper()
	for o, options := range hub.CacheOptions().ByObject {
		if reflect.TypeOf(o) == reflect.TypeOf(like) {
			return options
		}
	}
	t.Fatalf("no options for %T", like)
	return cache.ByObject{}
}

// cached returns what the cache keeps of an object. It may see an object twice.
func cached[T client.Object](t *testing.T, options cache.ByObject, o T) T {
	t.Helper()
	once, err := options.Transform(o)
	if err != nil {
		t.Fatal(err)
	}
	first, _ := json.Marshal(once)
	twice, err := options.Transform(once)
	if second, _ := json.Marshal(twice); err != nil || string(first) != string(second) {
		t.Errorf("the second time %s, %v", second, err)
	}
	return twice.(T) //nolint:errcheck,forcetypeassert // a wrong type panics
}

func size(t *testing.T, o any) int {
	t.Helper()
	content, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return len(content)
}

// largest returns the metadata of an object that a user made as large as possible.
func largest() metav1.ObjectMeta {
	name, long := strings.Repeat("n", 253), strings.Repeat("x", 100<<10)
	m := metav1.ObjectMeta{Name: name, GenerateName: name, UID: "u", ResourceVersion: "1", Annotations: map[string]string{"a": long},
		Labels: map[string]string{}, Finalizers: []string{long}, OwnerReferences: []metav1.OwnerReference{{Name: long}},
		ManagedFields: []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(`{"` + long + `":{}}`)}}}
	for i := range 100 {
		m.Labels[strings.Repeat("l", 1+i)] = strings.Repeat("v", 63)
	}
	return m
}

func TestCacheKeepsLittleOfRequests(t *testing.T) {
	options := optionsOf(t, &certificatesv1.CertificateSigningRequest{})
	request := &metav1.PartialObjectMetadata{ObjectMeta: largest()}
	own := map[string]string{"open-cluster-management.io/cluster-name": strings.Repeat("c", 63), "open-cluster-management.io/addon-name": strings.Repeat("a", 63)}
	maps.Copy(request.Labels, own)
	if !options.Label.Matches(labels.Set(own)) || options.Label.Matches(labels.Set{"app": "x"}) {
		t.Errorf("the selector is %s", options.Label)
	}
	kept := cached(t, options, request)
	if got := size(t, kept); got > most || !maps.Equal(kept.Labels, own) || kept.Name != strings.Repeat("n", 253) {
		t.Errorf("it keeps %d bytes: %.500v", got, kept)
	}
}

func TestCacheKeepsLittleOfPendingClusters(t *testing.T) {
	options := optionsOf(t, &ocm.ManagedCluster{})
	m := largest()
	pending := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: m.Name, Annotations: m.Annotations, ManagedFields: m.ManagedFields}, Spec: ocm.ManagedClusterSpec{LeaseDurationSeconds: 60,
		ManagedClusterClientConfigs: []ocm.ClientConfig{{CABundle: make([]byte, 60<<10)}}, Taints: []ocm.Taint{{Value: strings.Repeat("x", 9999)}}},
		Status: ocm.ManagedClusterStatus{Conditions: []metav1.Condition{{Type: ocm.ConditionHubAccepted, Message: "m"}}, ClusterClaims: []ocm.ManagedClusterClaim{{Value: strings.Repeat("x", 9999)}}}}
	accepted := pending.DeepCopy()
	accepted.Spec.HubAcceptsClient = true
	edited := pending.DeepCopy()
	edited.Annotations["b"] = ""
	kept := cached(t, options, pending)
	if got := size(t, kept); got > most || len(kept.Status.Conditions) != 1 || kept.Status.Conditions[0].Message != "m" || kept.Spec.LeaseDurationSeconds != 60 {
		t.Errorf("it keeps %d bytes: %.500v", got, kept)
	}
	if maps.Equal(kept.Annotations, cached(t, options, edited).Annotations) {
		t.Error("an edit of the annotations does not show")
	}
	for key := range kept.Annotations { // a user sets it too
		disguised := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{key: m.Annotations["a"]}}}
		if got := size(t, cached(t, options, disguised)); got > most {
			t.Errorf("it keeps %d bytes of a user's annotation %s", got, key)
		}
	}
	want := accepted.DeepCopy()
	want.ManagedFields = nil
	if kept := cached(t, options, accepted); !reflect.DeepEqual(kept, want) {
		t.Errorf("of an accepted cluster it keeps %.500v", kept)
	}
}
