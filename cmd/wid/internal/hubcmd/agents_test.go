package hubcmd

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/registration/ocm"
)

// Only clusters that OCM's agent may still serve are named: those that the hub accepts, and whose Lease is not ours.
func TestForeignAgents(t *testing.T) {
	lease := func(cluster, name string, holder *string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}, Spec: coordinationv1.LeaseSpec{HolderIdentity: holder}}
	}
	c := newHub(t, cluster("ours", true), lease("ours", ocm.LeaseName, new("ours")),
		cluster("theirs", true), lease("theirs", ocm.LeaseName, new(ocm.LeaseName)),
		cluster("another-lease", true), lease("another-lease", "other", new("another-lease")),
		cluster("nobody", true), lease("nobody", ocm.LeaseName, nil), cluster("without", true), cluster("refused", false))
	names, err := foreignAgents(t.Context(), c)
	if want := []string{"another-lease", "nobody", "theirs", "without"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("got %q, %v, want %q", names, err, want)
	}
}

// Where the Leases or the clusters cannot be read, the warning holds for all.
func TestWarnOfAgentsThatCannotBeTold(t *testing.T) {
	for name, refused := range map[string]client.ObjectList{"Leases": &coordinationv1.LeaseList{}, "clusters": &ocm.ManagedClusterList{}} {
		t.Run(name, func(t *testing.T) {
			c := fakeHub(t, cluster("theirs", true)).
				WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					if reflect.TypeOf(list) == reflect.TypeOf(refused) {
						return errors.New("refused")
					}
					return c.List(ctx, list, opts...)
				}}).Build()
			var out bytes.Buffer
			cmd := NewHubInit()
			cmd.SetErr(&out)
			(&hubInit{}).warnOfAgents(t.Context(), cmd, c)
			if want := "wid: warning: this hub was one of Open Cluster Management: its agents stop to work without --ocm-agents\n"; out.String() != want {
				t.Errorf("it says %s", &out)
			}
		})
	}
}
