package agent_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/internal/testing/slowserver"
	"github.com/workloadid/workloadid/registration/agent"
)

func TestAgentUnjoins(t *testing.T) {
	w := newAgentEnvironment(t)
	if err := w.agent.Unjoin(t.Context()); !errors.Is(err, agent.ErrNotJoined) {
		t.Errorf("before it has joined: %v", err)
	}
	w.join()
	for range 2 {
		regtest.Must(t, w.agent.Unjoin(t.Context()))
	}
	if w.cluster().Spec.HubAcceptsClient {
		t.Error("the hub still accepts the cluster")
	}
	w.refused[string(w.secret().Data["shared"])] = forbidden()
	if err := w.agent.Unjoin(t.Context()); err == nil || !strings.Contains(err.Error(), "deny it there") {
		t.Errorf("got %v", err)
	}
}

// A hub of Open Cluster Management grants update instead of patch. Fields that
// this build does not know survive an update of all that was read.
func TestAgentUnjoinsWhereItMayOnlyUpdate(t *testing.T) {
	for name, row := range map[string]struct {
		update error
		says   []string
	}{
		"update": {},
		"neither": {apierrors.NewForbidden(schema.GroupResource{Resource: "managedclusters"}, "cluster1",
			errors.New("no update")), []string{"no patch", "no update", "deny it there"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newAgentEnvironment(t)
			w.join()
			var updated client.Object
			hub, ok := w.hub.(client.WithWatch)
			if !ok {
				t.Fatal("no WithWatch")
			}
			w.hub = interceptor.NewClient(hub, interceptor.Funcs{
				Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "managedclusters"}, "cluster1",
						errors.New("no patch"))
				},
				Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
					if updated = o; row.update != nil {
						return row.update
					}
					return c.Update(ctx, o, opts...)
				}})
			err := w.agent.Unjoin(t.Context())
			if (err != nil) != (row.update != nil) || w.cluster().Spec.HubAcceptsClient != (row.update != nil) {
				t.Errorf("accepted %t, %v", w.cluster().Spec.HubAcceptsClient, err)
			}
			for _, want := range row.says {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v lacks %q", err, want)
				}
			}
			if _, ok := updated.(*unstructured.Unstructured); !ok {
				t.Errorf("updates %T", updated)
			}
		})
	}
}

func TestAgentReportsAWithdrawalThatTimesOut(t *testing.T) {
	w := newAgentEnvironment(t)
	w.join()
	slowserver.TestObject(t, regtest.Scheme(t), w.cluster(), func(c client.WithWatch) error {
		w.hub = c
		return w.agent.Unjoin(t.Context())
	})
}
