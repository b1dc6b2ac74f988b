package hubcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/workloadid/workloadid/internal/testing/regtest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/registration/ocm"
)

// deniedCluster is a cluster that the hub denied some time ago.
func deniedCluster(name string, ago time.Duration) *ocm.ManagedCluster {
	c := cluster(name, false, denied(ago))
	c.UID, c.Finalizers = "uid-1", []string{ocm.Finalizer}
	return c
}

// unreadableCluster is denied at a time that Go writes as the year 10000, and
// then cannot read.
func unreadableCluster(name string) *ocm.ManagedCluster {
	c := deniedCluster(name, time.Hour)
	c.Status.Conditions[0].LastTransitionTime = metav1.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
	return c
}

func TestUnreadableClusterIsShownAndSpared(t *testing.T) {
	hub := newHub(t, unreadableCluster("far"), deniedCluster("near", 2*time.Hour))
	all, err := clustersOf(t.Context(), hub)
	if err != nil || len(all) != 2 {
		t.Fatalf("%v, %v", all, err)
	}
	var out strings.Builder
	statusTable(&out, all)
	text, err := cleanUpFake(t, hub, false)
	if err != nil || !strings.Contains(text, `cluster "near" deleted`) {
		t.Errorf("cleanup says %q, %v", text, err)
	}
	for _, text := range []string{out.String(), text} {
		if !strings.Contains(text, `cluster "far": a value of the ManagedCluster cannot be read`) ||
			!strings.Contains(text, "10000-01-01T00:00:00Z") {
			t.Errorf("got %q", text)
		}
	}
}

// deletingHub calls on in place of each deletion.
func deletingHub(t *testing.T, on func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error,
	clusters ...client.Object) client.WithWatch {
	return fakeHub(t, clusters...).WithInterceptorFuncs(interceptor.Funcs{Delete: on}).Build()
}

// cleanUpFake runs the command's work with its default age.
func cleanUpFake(t *testing.T, hub client.Client, dryRun bool) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := NewHubCleanup()
	cmd.SetOut(&out)
	err := CleanUp(t.Context(), cmd, hub, time.Hour, dryRun)
	return out.String(), err
}

// Only clusters that administrator and hub have denied for more than an hour
// are deleted.
func TestHubCleanupChooses(t *testing.T) {
	const old = 2 * time.Hour
	for name, tc := range map[string]struct {
		ago     time.Duration
		edit    func(c *ocm.ManagedCluster, condition *metav1.Condition)
		deletes bool
	}{
		"denied for 61 minutes": {ago: 61 * time.Minute, deletes: true},
		"denied for 59 minutes": {ago: 59 * time.Minute},
		"accepted": {ago: old, edit: func(c *ocm.ManagedCluster, condition *metav1.Condition) {
			c.Spec.HubAcceptsClient, condition.Status, condition.Reason = true, metav1.ConditionTrue, ocm.ReasonHubAccepted
		}},
		"pending without a condition": {ago: old, edit: func(c *ocm.ManagedCluster, _ *metav1.Condition) {
			c.Status.Conditions = nil
		}},
		"denied but accepted again": {ago: old, edit: func(c *ocm.ManagedCluster, _ *metav1.Condition) {
			c.Spec.HubAcceptsClient = true
		}},
		"denied, hub has not acted": {ago: old, edit: func(_ *ocm.ManagedCluster, condition *metav1.Condition) {
			condition.Status, condition.Reason = metav1.ConditionTrue, ocm.ReasonHubAccepted
		}},
		"condition True with the reason of a denial": {ago: old,
			edit: func(_ *ocm.ManagedCluster, condition *metav1.Condition) { condition.Status = metav1.ConditionTrue }},
		"condition Unknown": {ago: old,
			edit: func(_ *ocm.ManagedCluster, condition *metav1.Condition) { condition.Status = metav1.ConditionUnknown }},
		"refused for another reason": {ago: old, edit: func(_ *ocm.ManagedCluster, condition *metav1.Condition) {
			condition.Reason = ocm.ReasonGrantFailed
		}},
		"another condition": {ago: old, edit: func(_ *ocm.ManagedCluster, condition *metav1.Condition) {
			condition.Type = ocm.ConditionJoined
		}},
		"being deleted": {ago: old, edit: func(c *ocm.ManagedCluster, _ *metav1.Condition) {
			c.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := deniedCluster("cluster1", tc.ago)
			if tc.edit != nil {
				tc.edit(cluster, &cluster.Status.Conditions[0])
			}
			calls := 0
			hub := deletingHub(t, func(ctx context.Context, c client.WithWatch, o client.Object,
				opts ...client.DeleteOption) error {
				calls++
				return c.Delete(ctx, o, opts...)
			}, cluster)
			would, err := cleanUpFake(t, hub, true)
			if err != nil || calls != 0 ||
				strings.Contains(would, `cluster "cluster1" would be deleted: denied since 20`) != tc.deletes {
				t.Errorf("--dry-run says %q, %v, after %d deletions", would, err, calls)
			}
			out, err := cleanUpFake(t, hub, false)
			if err != nil || (calls == 1) != tc.deletes ||
				strings.Contains(out, `cluster "cluster1" deleted: denied since 20`) != tc.deletes {
				t.Errorf("says %q, %v, after %d deletions", out, err, calls)
			}
			if !tc.deletes && out+would != strings.Repeat("none denied for 1h\n", 2) {
				t.Errorf("says %q and %q", would, out)
			}
		})
	}
}

// The cluster that is deleted is the one that was listed, unchanged.
func TestHubCleanupSparesWhatHasChanged(t *testing.T) {
	for name, change := range map[string]func(context.Context, client.Client, *ocm.ManagedCluster) error{
		"accepted": func(ctx context.Context, c client.Client, cluster *ocm.ManagedCluster) error {
			cluster.Spec.HubAcceptsClient = true
			return c.Update(ctx, cluster)
		},
		"gone": func(ctx context.Context, c client.Client, cluster *ocm.ManagedCluster) error {
			cluster.Finalizers = nil
			return errors.Join(c.Update(ctx, cluster), c.Delete(ctx, cluster))
		},
	} {
		t.Run(name, func(t *testing.T) {
			hub := deletingHub(t, func(ctx context.Context, c client.WithWatch, o client.Object,
				opts ...client.DeleteOption) error {
				current := &ocm.ManagedCluster{}
				if err := errors.Join(c.Get(ctx, client.ObjectKeyFromObject(o), current), change(ctx, c, current)); err != nil {
					return err
				}
				given := (&client.DeleteOptions{}).ApplyOptions(opts).Preconditions
				if given == nil || given.UID == nil || *given.UID != o.GetUID() { // the fake does not compare it
					t.Errorf("preconditions %+v", given)
				}
				return c.Delete(ctx, o, opts...)
			}, deniedCluster("cluster1", 2*time.Hour))
			out, err := cleanUpFake(t, hub, false)
			if err != nil || !strings.Contains(out, `cluster "cluster1" left alone`) {
				t.Errorf("says %q, %v", out, err)
			}
			if regtest.HasCluster(t, hub, "cluster1") != (name == "accepted") {
				t.Error("deleted, or created again")
			}
		})
	}
}

// A cluster that cannot be deleted keeps no other one, and the exit code tells.
func TestHubCleanupGoesOnAfterAFailure(t *testing.T) {
	hub := deletingHub(t, func(ctx context.Context, c client.WithWatch, o client.Object,
		opts ...client.DeleteOption) error {
		if o.GetName() != "c" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "managedclusters"}, o.GetName(), errors.New("no"))
		}
		return c.Delete(ctx, o, opts...)
	}, deniedCluster("a", 2*time.Hour), deniedCluster("b", 2*time.Hour), deniedCluster("c", 2*time.Hour))
	out, err := cleanUpFake(t, hub, false)
	if cli.ExitCode(t.Context(), err) != cli.ExitDenied || !strings.Contains(err.Error(), `delete ManagedCluster "a"`) ||
		!strings.Contains(err.Error(), `delete ManagedCluster "b"`) {
		t.Errorf("got %v", err)
	}
	if strings.Count(out, "\n") != 1 || !strings.Contains(out, `cluster "c" deleted`) || regtest.HasCluster(t, hub, "c") {
		t.Errorf("says %q", out)
	}
}

// A list comes in pages, and a failure of a later page hides nothing of an
// earlier one.
func TestHubCleanupListsInPages(t *testing.T) {
	hub := newHub(t)
	var asked []string
	paged := interceptor.NewClient(hub,
		interceptor.Funcs{List: func(_ context.Context, _ client.WithWatch, list client.ObjectList,
			opts ...client.ListOption) error {
			o := (&client.ListOptions{}).ApplyOptions(opts)
			asked = append(asked, fmt.Sprint(o.Limit, o.Continue))
			clusters := list.(*ocm.ManagedClusterList) //nolint:errcheck,forcetypeassert // a wrong type panics
			switch o.Continue {
			case "":
				clusters.Items, clusters.Continue = []ocm.ManagedCluster{*deniedCluster("a", 2*time.Hour)}, "2"
			case "2":
				clusters.Items, clusters.Continue = []ocm.ManagedCluster{*deniedCluster("b", 2*time.Hour)}, "3"
			default:
				return apierrors.NewServiceUnavailable("starting")
			}
			return nil
		}})
	out, err := cleanUpFake(t, paged, true)
	if cli.ExitCode(t.Context(), err) != cli.ExitUnavailable || strings.Count(out, "would be deleted") != 2 ||
		!slices.Equal(asked, []string{"20", "202", "203"}) {
		t.Errorf("after %q it says %q, %v", asked, out, err)
	}
}
