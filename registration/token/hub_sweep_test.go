package token_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/token"
)

// A cache that lags behind, or an API server that does not answer about
// add-ons, is no reason to end the tokens of an add-on.
func TestHubKeepsTokensOfAnAddOnThatMayExist(t *testing.T) {
	gone := apierrors.NewNotFound(schema.GroupResource{Resource: "managedclusteraddons"}, "addon1")
	unserved := &meta.NoKindMatchError{}
	for name, tc := range map[string]struct {
		cached, live error
		accepted     bool
		want         int
		fails        bool
	}{
		"gone":                   {gone, gone, true, 0, false},
		"gone in the cache only": {gone, nil, true, 3, false},
		"a version not served": {gone,
			apierrors.NewGenericServerResponse(404, "GET", schema.GroupResource{}, "addon1", "404 page not found", 0, true),
			true, 3, false},
		"no version served":      {unserved, unserved, true, 3, false},
		"no answer":              {gone, apierrors.NewServiceUnavailable("starting"), true, 3, true},
		"not served, and denied": {unserved, unserved, false, 0, false},
		"not cached, but denied": {gone, nil, false, 0, false},
		"no answer, but denied":  {gone, apierrors.NewServiceUnavailable("starting"), false, 3, true},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := managedCluster("cluster1", true)
			h := newMemoryHub(t, cluster, addOn("cluster1", "addon1", tokenItem(user)))
			h.reconcile("cluster1", "addon1")
			err := h.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster)
			cluster.Spec.HubAcceptsClient = tc.accepted
			regtest.Must(t, errors.Join(err, h.Update(t.Context(), cluster)))
			options := token.HubOptions{Client: answering(h.WithWatch, tc.cached), Reader: answering(h.WithWatch, tc.live)}
			if meta.IsNoMatchError(tc.live) {
				options.Client, options.RemoveOnly = withoutAddOns{options.Client}, true
			}
			if h.hub, err = token.NewHub(options); err != nil {
				t.Fatal(err)
			}
			_, err = h.hub.Reconcile(t.Context(),
				reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "cluster1", Name: "addon1"}})
			if got := there(t, h); len(got) != tc.want || (err != nil) != tc.fails {
				t.Errorf("there are %q, error %v", got, err)
			}
		})
	}
}

// withoutAddOns is a client of a hub that serves no version of add-ons.
type withoutAddOns struct{ client.Client }

func (withoutAddOns) RESTMapper() meta.RESTMapper { return meta.NewDefaultRESTMapper(nil) }

// answering is a client that answers reads of add-ons with an error.
func answering(c client.WithWatch, answer error) client.WithWatch {
	return interceptor.NewClient(c,
		interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if _, ok := o.(*addon.ManagedClusterAddOn); ok && answer != nil {
				return answer
			}
			return c.Get(ctx, key, o, opts...)
		}})
}

// The tokens of a former add-on end only after the API server has confirmed
// which add-on there is.
func TestHubReplacesAFormerAddOnsServiceAccount(t *testing.T) {
	for name, confirms := range map[string]bool{"the same add-on": true, "another one": false} {
		t.Run(name, func(t *testing.T) {
			h := newMemoryHub(t, managedCluster("cluster1", true), addOn("cluster1", "addon1", tokenItem(user)))
			h.reconcile("cluster1", "addon1")
			sa := &corev1.ServiceAccount{}
			err := h.Get(t.Context(), account, sa)
			before := sa.UID
			sa.OwnerReferences[0].UID = "former"
			regtest.Must(t, errors.Join(err, h.Update(t.Context(), sa)))
			options := token.HubOptions{Client: h, Reader: h}
			reads := 0
			options.Reader = interceptor.NewClient(h.WithWatch,
				interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
					opts ...client.GetOption) error {
					err := c.Get(ctx, key, o, opts...)
					if _, ok := o.(*addon.ManagedClusterAddOn); ok {
						if reads++; reads > 1 && !confirms {
							o.SetUID("newer")
						}
					}
					return err
				}})
			hub, err := token.NewHub(options)
			regtest.Must(t, err)
			_, err = hub.Reconcile(t.Context(),
				reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "cluster1", Name: "addon1"}})
			if getErr := h.Get(t.Context(), account, sa); getErr != nil || (err == nil) != confirms ||
				(sa.UID != before) != confirms {
				t.Errorf("UID %q, before %q, %v, %v", sa.UID, before, err, getErr)
			}
		})
	}
}
