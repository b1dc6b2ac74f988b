package webhook_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/podidentity/webhook"
)

func TestTwoBindingsOfOneServiceAccount(t *testing.T) {
	for name, o := range map[string]func() webhook.Options{
		"in the cache": func() webhook.Options { return options(bind("one", "app"), bind("other", "x"), bind("two", "app")) },
		"live": func() webhook.Options {
			o := options(bind("one", "app"), bind("two", "app"))
			o.Bindings = &bindings{}
			return o
		},
	} {
		t.Run(name, func(t *testing.T) {
			response := admit(t, newHandler(t, o()), `{"spec":{"serviceAccountName":"app","containers":[{"name":"a"}]}}`)
			if response.Allowed || !strings.Contains(response.Result.Message, `"one" and "two"`) ||
				!strings.Contains(response.Result.Message, "delete all but one") {
				t.Errorf("got %+v", response.Result)
			}
		})
	}
}

func TestCacheAndLiveList(t *testing.T) {
	const pod = `{"spec":{"serviceAccountName":"app","containers":[{"name":"a"}]}}`
	has, has2, down := []v1alpha1.IAMBinding{bind("b", "app")}, []v1alpha1.IAMBinding{bind("b", "other")},
		errors.New("down")
	for name, test := range map[string]struct {
		cache, live     bindings
		allowed, inject bool
		calls           int64
	}{
		"a hit asks only the cache":           {bindings{items: has}, bindings{err: down}, true, true, 0},
		"a miss asks the API server":          {bindings{items: has2}, bindings{items: has}, true, true, 1},
		"a miss of both":                      {bindings{}, bindings{items: has2}, true, false, 1},
		"a miss while the API server is down": {bindings{}, bindings{err: down}, false, false, 1},
		"a cache that fails":                  {bindings{err: down}, bindings{items: has}, false, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			o := options()
			o.Bindings, o.Live = &test.cache, &test.live
			response := admit(t, newHandler(t, o), pod)
			if response.Allowed != test.allowed || (len(response.Patch) > 0) != test.inject || test.live.calls != test.calls {
				t.Errorf("got %+v after %d live calls", response.Result, test.live.calls)
			}
		})
	}
}

func TestLiveListIsReadInPages(t *testing.T) {
	var others []v1alpha1.IAMBinding
	for i := range 10 { // three pages of 4
		others = append(others, bind(fmt.Sprint(i), "other"))
	}
	for name, test := range map[string]struct {
		items         []v1alpha1.IAMBinding
		allow, inject bool
	}{
		"on the last page": {append(slices.Clone(others), bind("b", "app")), true, true},
		"on no page":       {others, true, false},
		"two on two pages": {slices.Concat([]v1alpha1.IAMBinding{bind("a", "app")}, others,
			[]v1alpha1.IAMBinding{bind("b", "app")}), false, false},
		"on the first page": {slices.Concat([]v1alpha1.IAMBinding{bind("a", "app")}, others), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := options()
			live := &bindings{items: test.items, pages: true}
			o.Live = live
			response := admit(t, newHandler(t, o), `{"spec":{"serviceAccountName":"app","containers":[{"name":"a"}]}}`)
			if response.Allowed != test.allow || (len(response.Patch) > 0) != test.inject || live.calls != 3 {
				t.Errorf("got %+v after %d pages", response.Result, live.calls)
			}
		})
	}
}

func TestDeletedBindingIsIgnored(t *testing.T) {
	deleted := bind("old", "app")
	deleted.DeletionTimestamp, deleted.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"example.com/x"}
	for name, test := range map[string]struct {
		items  []v1alpha1.IAMBinding
		inject bool
	}{
		"alone":            {[]v1alpha1.IAMBinding{deleted}, false},
		"beside a new one": {[]v1alpha1.IAMBinding{deleted, bind("new", "app")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			response := admit(t, newHandler(t, options(test.items...)),
				`{"spec":{"serviceAccountName":"app","containers":[{"name":"a"}]}}`)
			if !response.Allowed || (len(response.Patch) > 0) != test.inject {
				t.Errorf("got %+v with the patch %s", response.Result, response.Patch)
			}
		})
	}
}
