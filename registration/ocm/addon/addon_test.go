package addon_test

import (
	"context"
	"encoding/json"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/ocm/addon/v1alpha1"
)

// status is what both versions have.
type status interface {
	Items() []ocm.Registration
	SetItems([]ocm.Registration)
}

// Both versions read as the same items, and are written as they were read.
func TestItemsOfBothVersions(t *testing.T) {
	items := []ocm.Registration{
		{Type: ocm.KubeClient, Driver: registration.AuthTypeToken,
			Subject: ocm.Subject{User: "system:serviceaccount:cluster1:a"}},
		{Type: ocm.CustomSigner, SignerName: "example.com/signer",
			Subject: ocm.Subject{User: "u", Groups: []string{"g"}, OrganizationUnits: []string{"o"}}},
	}
	for version, tc := range map[string]struct {
		status, again status
		wire          string
	}{
		"v1alpha1": {&v1alpha1.ManagedClusterAddOnStatus{}, &v1alpha1.ManagedClusterAddOnStatus{},
			`{"registrations":[{"signerName":"kubernetes.io/kube-apiserver-client","subject":{"user":"system:serviceaccount:cluster1:a"}},` +
				`{"signerName":"example.com/signer","subject":{"user":"u","groups":["g"],"organizationUnit":["o"]}}],"kubeClientDriver":"token"}`},
		"v1beta1": {&addon.ManagedClusterAddOnStatus{}, &addon.ManagedClusterAddOnStatus{},
			`{"registrations":[{"type":"kubeClient","kubeClient":{"driver":"token","subject":{"user":"system:serviceaccount:cluster1:a"}}},` +
				`{"type":"customSigner","customSigner":{"signerName":"example.com/signer","subject":{"user":"u","groups":["g"],"organizationUnits":["o"]}}}]}`},
	} {
		t.Run(version, func(t *testing.T) {
			if err := json.Unmarshal([]byte(tc.wire), tc.status); err != nil {
				t.Fatal(err)
			}
			if got := tc.status.Items(); !reflect.DeepEqual(got, items) {
				t.Errorf("items %+v", got)
			}
			tc.again.SetItems(items)
			if got, err := json.Marshal(tc.again); err != nil || string(got) != tc.wire {
				t.Errorf("written as %s, %v", got, err)
			}
		})
	}
}

func mapper(versions ...schema.GroupVersion) meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, v := range versions {
		m.Add(v.WithKind("ManagedClusterAddOn"), meta.RESTScopeNamespace)
	}
	return m
}

func TestDiscover(t *testing.T) {
	for name, tc := range map[string]struct {
		served []schema.GroupVersion
		want   client.Object
	}{
		"older hub":    {[]schema.GroupVersion{v1alpha1.GroupVersion}, &v1alpha1.ManagedClusterAddOn{}},
		"both":         {[]schema.GroupVersion{addon.GroupVersion, v1alpha1.GroupVersion}, &v1alpha1.ManagedClusterAddOn{}},
		"v1beta1 only": {[]schema.GroupVersion{addon.GroupVersion}, &addon.ManagedClusterAddOn{}},
	} {
		t.Run(name, func(t *testing.T) {
			api, err := addon.Discover(mapper(tc.served...))
			if err != nil || reflect.TypeOf(api.New()) != reflect.TypeOf(tc.want) {
				t.Errorf("%T, %v", api.New(), err)
			}
		})
	}
	if _, err := addon.Discover(mapper()); !meta.IsNoMatchError(err) {
		t.Errorf("no add-ons: %v", err)
	}
}

// A change that meets another change is made again, and a change of nothing is
// no write.
func TestPatchStatus(t *testing.T) {
	for _, version := range []schema.GroupVersion{v1alpha1.GroupVersion, addon.GroupVersion} {
		t.Run(version.Version, func(t *testing.T) {
			api, err := addon.Discover(mapper(version))
			if err != nil {
				t.Fatal(err)
			}
			scheme := runtime.NewScheme()
			if err := addon.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			o := api.New()
			o.SetNamespace("cluster1")
			o.SetName("addon1")
			writes := 0
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(o).WithStatusSubresource(o).WithInterceptorFuncs(
				interceptor.Funcs{
					SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
						opts ...client.SubResourcePatchOption) error {
						writes++
						return c.SubResource(sub).Patch(ctx, o, p, opts...)
					}}).Build()
			stale := api.New()
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), stale); err != nil {
				t.Fatal(err)
			}
			items := []ocm.Registration{{Type: ocm.KubeClient, Driver: registration.AuthTypeToken}}
			set := func(s *addon.Status) bool { s.Items = items; return true }
			condition := metav1.Condition{Type: "T", Status: metav1.ConditionTrue, Reason: "R"}
			tell := func(s *addon.Status) bool { return meta.SetStatusCondition(&s.Conditions, condition) }
			same := func(s *addon.Status) bool { return meta.SetStatusCondition(&s.Conditions, s.Conditions[0]) }
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
				t.Fatal(err)
			}
			if err := addon.PatchStatus(t.Context(), c, o, set); err != nil {
				t.Fatal(err)
			}
			if err := addon.PatchStatus(t.Context(), c, stale, tell); err != nil || writes != 3 {
				t.Errorf("%d writes, %v, want one of them refused", writes, err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
				t.Fatal(err)
			}
			if err := addon.PatchStatus(t.Context(), c, o, same); err != nil || writes != 3 {
				t.Errorf("%d writes, %v", writes, err)
			}
			if got := addon.StatusOf(o); !reflect.DeepEqual(got.Items, items) || len(got.Conditions) != 1 {
				t.Errorf("%+v", got)
			}
		})
	}
}
