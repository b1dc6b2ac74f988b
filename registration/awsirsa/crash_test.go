package awsirsa_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

// checkNoTrace expects that neither AWS nor the hub has anything of the cluster
// left, but the claim of one that is denied.
func (w *hubEnvironment) checkNoTrace(t *testing.T) {
	t.Helper()
	checkNothingLeft(t, w.cloud)
	roles := &rbacv1.ClusterRoleList{}
	regtest.Must(t, w.kube.List(t.Context(), roles))
	for _, role := range roles.Items {
		_, granted := registration.RecordedClaim(&role)
		err := w.kube.Get(t.Context(), client.ObjectKey{Name: role.Labels[ocm.ClusterNameLabel]}, &ocm.ManagedCluster{})
		if granted || len(role.Rules) > 0 || err != nil {
			t.Errorf("the ClusterRole %+v, and its cluster: %v", role, err)
		}
	}
	for _, list := range []client.ObjectList{&rbacv1.ClusterRoleBindingList{}, &rbacv1.RoleBindingList{}} {
		regtest.Must(t, w.kube.List(t.Context(), list))
		if n := meta.LenList(list); n > 0 {
			t.Errorf("%d objects in %T", n, list)
		}
	}
}

// meanwhile is what an administrator does while the hub is down, and what the
// next process has to reach.
var meanwhile = []struct {
	name    string
	does    func(w *hubEnvironment)
	granted bool
}{
	{"nothing happens", func(*hubEnvironment) {}, true},
	{"the cluster is denied", func(w *hubEnvironment) {
		w.edit("shop1", func(c *ocm.ManagedCluster) { c.Spec.HubAcceptsClient = false })
	}, false},
	{"the cluster is deleted", func(w *hubEnvironment) { w.delete("shop1") }, false},
}

// The whole hub dies after each call of AWS that a grant makes: its writes fail
// too.
func TestHubDiesAfterEachCallOfAGrant(t *testing.T) {
	for n := 1; n <= 5; n++ {
		for _, m := range meanwhile {
			t.Run(fmt.Sprintf("after call %d, then %s", n, m.name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newHubEnvironment(t)
					w.create("shop1", managedARN, false)
					w.cloud.dieAfter = n
					w.update("shop1", func(c *ocm.ManagedCluster) { c.Spec.HubAcceptsClient = true })
					if len(w.cloud.calls) != n || w.accepted("shop1").Status == metav1.ConditionTrue {
						t.Fatalf("calls %q, condition %+v", w.cloud.calls, w.accepted("shop1"))
					}
					w.cloud.reset()
					m.does(w)
					w.restart()
					w.reconcile("shop1")
					if m.granted {
						checkGranted(t, w.cloud)
						return
					}
					w.checkNoTrace(t)
				})
			})
		}
	}
}

// The first call is the removal of the ClusterRoleBinding.
func TestHubDiesAfterEachCallOfARevocation(t *testing.T) {
	for n := 1; n <= 6; n++ {
		for _, m := range meanwhile[1:] {
			t.Run(fmt.Sprintf("after call %d, %s", n, m.name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newHubEnvironment(t)
					w.create("shop1", managedARN, true)
					w.cloud.reset()
					m.does(w)
					w.cloud.dieAfter = n
					w.reconcile("shop1")
					if len(w.cloud.calls) != n || w.cloud.calls[0] != "unbind" {
						t.Fatalf("calls %q", w.cloud.calls)
					}
					w.cloud.reset()
					w.restart()
					w.reconcile("shop1")
					w.checkNoTrace(t)
				})
			})
		}
	}
}

// mortal lets writes of aws-auth count as calls, after which the hub may die.
func mortal(t *testing.T, c *cloud, writes *int) client.Client {
	t.Helper()
	kube, ok := configMap(t, nodes, writes).(client.WithWatch)
	if !ok {
		t.Fatal("no WithWatch")
	}
	return interceptor.NewClient(kube,
		interceptor.Funcs{Update: func(ctx context.Context, kube client.WithWatch, o client.Object,
			opts ...client.UpdateOption) error {
			if c.dead() {
				return errDead
			}
			c.record("update aws-auth")
			if err := kube.Update(ctx, o, opts...); err != nil || !c.dead() {
				return err
			}
			return errDead
		}})
}

func TestHubWithAWSAuthDiesAfterEachCall(t *testing.T) {
	grant := []string{"GetRole", "CreateRole", "PutRolePolicy", "update aws-auth"}
	revoke := []string{"update aws-auth", "GetRole", "DeleteRolePolicy", "DeleteRole"}
	for n := 1; n <= 4; n++ {
		for _, revoked := range []bool{false, true} {
			t.Run(fmt.Sprintf("of a grant after call %d, then revoked %t", n, revoked), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var writes int
					c := newCloud()
					kube := mortal(t, c, &writes)
					c.dieAfter = n
					if _, err := newHub(t, c, withAWSAuth(kube)).Grant(t.Context(), "shop1", managedARN); !errors.Is(err, errDead) ||
						!slices.Equal(c.calls, grant[:n]) {
						t.Fatalf("calls %q, %v", c.calls, err)
					}
					c.reset()
					h := newHub(t, c, withAWSAuth(kube))
					if !revoked {
						if _, err := h.Grant(t.Context(), "shop1", managedARN); err != nil || len(mappings(t, kube)) != 2 || c.made != 1 {
							t.Errorf("entries %v, %v", mappings(t, kube), err)
						}
					}
					if err := h.Revoke(t.Context(), "shop1", managedARN); err != nil || len(mappings(t, kube)) != 1 ||
						len(c.roles) > 0 {
						t.Errorf("left: %v, roles %v, %v", mappings(t, kube), c.roles, err)
					}
				})
			})
		}
		t.Run(fmt.Sprintf("of a revocation after call %d", n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var writes int
				c := newCloud()
				kube := mortal(t, c, &writes)
				if _, err := newHub(t, c, withAWSAuth(kube)).Grant(t.Context(), "shop1", managedARN); err != nil {
					t.Fatal(err)
				}
				c.reset()
				c.dieAfter = n
				if err := newHub(t, c, withAWSAuth(kube)).Revoke(t.Context(), "shop1", managedARN); !errors.Is(err, errDead) ||
					!slices.Equal(c.calls, revoke[:n]) {
					t.Fatalf("calls %q, %v", c.calls, err)
				}
				c.reset()
				if err := newHub(t, c, withAWSAuth(kube)).Revoke(t.Context(), "shop1", managedARN); err != nil ||
					len(mappings(t, kube)) != 1 || len(c.roles) > 0 {
					t.Errorf("left: %v, roles %v, %v", mappings(t, kube), c.roles, err)
				}
			})
		})
	}
}
