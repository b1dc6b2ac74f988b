// Package cachetest checks how much of an object a cache keeps.
package cachetest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Most is how many bytes a cache keeps of an object, whatever its writer put
// into it.
const Most = 8 << 10

// large is about the size of the largest object that etcd takes.
const large = 1_500_000

// Check fills all fields of an object, and the keys that it has, once with few
// long values and once with many short ones. The transform function has to keep
// at most Most bytes. It may see an object twice, and leaves a deletion alone
// that the watch missed.
func Check(t *testing.T, transform toolscache.TransformFunc, like client.Object) {
	t.Helper()
	if transform == nil {
		t.Fatal("no transform function")
	}
	// A list of Most values is more than a cache may keep.
	for form, f := range map[string]filler{"long values": {length: large / 8, items: 1},
		"many values": {length: 1, items: Most}} {
		o := filled(like, f)
		for ; Size(t, o) < large; o = filled(like, f) {
			f.items *= 2
		}
		once, err := transform(o)
		if err != nil {
			t.Fatal(err)
		}
		before := Size(t, once)
		twice, err := transform(once)
		if after := Size(t, twice); err != nil || after != before || after > Most {
			t.Errorf("%s: it keeps %d bytes, the second time %d, %v", form, before, after, err)
		}
	}
	tombstone := toolscache.DeletedFinalStateUnknown{Key: "default/a", Obj: like}
	if kept, err := transform(tombstone); err != nil || !reflect.DeepEqual(kept, tombstone) {
		t.Errorf("of a missed deletion it keeps %+v, %v", kept, err)
	}
}

func filled(like client.Object, f filler) client.Object {
	o, _ := like.DeepCopyObject().(client.Object)
	f.fill(reflect.ValueOf(o).Elem())
	o.SetName(like.GetName())
	o.SetNamespace("default")
	o.SetUID("uid")
	o.SetResourceVersion("1")
	return o
}

// Size returns the size of an object in bytes, as JSON.
func Size(t *testing.T, o any) int {
	t.Helper()
	content, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return len(content)
}

// filler fills values. Lists in lists have one item.
type filler struct{ length, items int }

func (f filler) fill(v reflect.Value) {
	switch v.Interface().(type) {
	case metav1.TypeMeta, metav1.FieldsV1:
		return
	case metav1.Time:
		v.Set(reflect.ValueOf(metav1.NewTime(time.Unix(1, 0))))
		return
	}
	inner := filler{f.length, 1}
	switch v.Kind() { //nolint:exhaustive // the others have a size of their own
	case reflect.String:
		v.SetString(strings.Repeat("x", f.length))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				f.fill(v.Field(i))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), f.items, f.items))
		for i := range f.items {
			inner.fill(v.Index(i))
		}
	case reflect.Map:
		keys := v.MapKeys()
		for i := range f.items {
			keys = append(keys, reflect.ValueOf(fmt.Sprint("key", i)).Convert(v.Type().Key()))
		}
		v.Set(reflect.MakeMap(v.Type()))
		for _, key := range keys {
			value := reflect.New(v.Type().Elem()).Elem()
			inner.fill(value)
			v.SetMapIndex(key, value)
		}
	}
}
