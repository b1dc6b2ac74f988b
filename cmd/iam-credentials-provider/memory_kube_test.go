package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/podscenario"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
)

// tenant makes the namespace of a tenant that may use all roles, and returns a
// binding of it.
func (w *environment) tenant(t *testing.T) *v1alpha1.IAMBinding {
	t.Helper()
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: podscenario.Tenant}},
		&v1alpha1.IAMRoleAllowList{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AllowListName},
			Spec: v1alpha1.IAMRoleAllowListSpec{
				Rules: []v1alpha1.AllowRule{{Namespaces: []string{podscenario.Tenant}, Roles: []string{"*"}}}}},
	} {
		if err := w.Admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	b := podscenario.Binding(podscenario.Tenant, "app", "arn:aws:iam::123456789012:role/app")
	kubetest.Eventually(t, "the policy knows the list", func() bool {
		return w.Admin.Create(t.Context(), b.DeepCopy(), client.DryRunAll) == nil
	})
	return b
}

// The largest roles and session policies that the CRD accepts take no memory of
// the webhook.
func TestMemoryOfTheWebhooksCache(t *testing.T) {
	const bindings, limit = 1000, 4 << 10
	w, _ := install(t)
	kube, err := w.ConfigOf(t.Context(), podscenario.WebhookAccount)
	if err != nil {
		t.Fatal(err)
	}
	if w.webhook.probeAddress, err = podscenario.FreeAddress(); err != nil {
		t.Fatal(err)
	}
	grown := func() float64 {
		before := heap()
		w.webhook.registerer = prometheus.NewRegistry()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- runWebhook(ctx, kube, w.webhook) }()
		kubetest.Eventually(t, "the webhook is ready", func() bool { return probe(t, w.webhook.probeAddress, "/readyz") == http.StatusOK })
		after := heap()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		return after - before
	}
	grown() // what a process makes once
	empty := grown()

	largest := w.tenant(t)
	largest.Spec.AWS.ExternalID = strings.Repeat("x", 1224)
	largest.Spec.AWS.SessionPolicy = "{" + strings.Repeat("ß", 2046) + "}"
	largest.Spec.AWS.SessionTags = map[string]v1alpha1.TagValue{}
	for i := range 8 {
		largest.Spec.AWS.SessionTags[fmt.Sprint(i)] = v1alpha1.TagValue(strings.Repeat("ß", 255))
	}
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(fleetParallel)
	for range bindings {
		g.Go(func() error { return w.Admin.Create(ctx, largest.DeepCopy()) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if each := (grown() - empty) / bindings; each > limit {
		t.Errorf("%.0f bytes for each binding", each)
	}
}

// The documented command limits the IAMBindings of a namespace.
func TestQuota(t *testing.T) {
	w, _ := install(t)
	stop, err := w.Cluster.ControllerManager("resourcequota-controller")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	b := w.tenant(t)
	const command = "kubectl -n team-a apply -k \\\n" +
		"  'https://github.com/workloadid/workloadid//config/iam-credentials-provider/namespace?ref=v0.1.0'\n"
	if !strings.Contains(page(t).Text, command) {
		t.Errorf("the page lacks %s", command)
	}
	quota := build(t, configDir+"/namespace")[0]
	quota.SetNamespace(b.Namespace)
	if err := w.Admin.Create(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	kubetest.Eventually(t, "the quota is in force", func() bool {
		err := w.Admin.Get(t.Context(), client.ObjectKeyFromObject(quota), quota)
		_, counted, _ := unstructured.NestedMap(quota.Object, "status", "used")
		return err == nil && counted
	})
	for range 100 {
		if err := w.Admin.Create(t.Context(), b.DeepCopy()); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Admin.Create(t.Context(), b.DeepCopy()); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), "exceeded quota: iambindings") {
		t.Errorf("the 101st: %v", err)
	}
}
