package auth_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/testing/cachetest"
)

// reader is a provider that reads annotations.
type reader struct {
	exchange
	names []string
}

func reads(names ...string) *reader { return &reader{names: names} }

func (r *reader) GetAnnotations() []string { return r.names }

func TestTransformKeepsWhatProvidersRead(t *testing.T) {
	deleted := &metav1.Time{Time: time.Now()}
	for name, row := range map[string]struct {
		providers []auth.Provider
		want      map[string]string
	}{
		"no provider":                  {},
		"one":                          {[]auth.Provider{reads("role")}, map[string]string{"role": "a"}},
		"two":                          {[]auth.Provider{reads("role"), reads("tenant", "region")}, map[string]string{"role": "a", "tenant": "b"}},
		"one that reads no annotation": {[]auth.Provider{&exchange{}}, nil},
		"a value without an end": {[]auth.Provider{reads("long")},
			map[string]string{"long": strings.Repeat("x", 2000)}},
	} {
		t.Run(name, func(t *testing.T) {
			meta := metav1.ObjectMeta{Namespace: "tenant-a", Name: "app", UID: "1", ResourceVersion: "2",
				DeletionTimestamp: deleted}
			whole, want := &corev1.ServiceAccount{ObjectMeta: meta}, &corev1.ServiceAccount{ObjectMeta: meta}
			want.Annotations = row.want
			whole.Labels, whole.Finalizers = map[string]string{"a": "b"}, []string{"a"}
			whole.Annotations = map[string]string{"role": "a", "tenant": "b", "long": strings.Repeat("x", 5000),
				corev1.LastAppliedConfigAnnotation: "{}"}
			whole.Secrets = []corev1.ObjectReference{{Name: "a"}}
			kept, err := auth.ServiceAccountTransform(row.providers...)(whole)
			if err != nil || !reflect.DeepEqual(kept, want) {
				t.Errorf("got %+v, %v, want %+v", kept, err, want)
			}
		})
	}
}

func TestTransformKeepsLittle(t *testing.T) {
	cachetest.Check(t, auth.ServiceAccountTransform(reads("role", "region")), &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"role": "", "region": ""}}})
}
