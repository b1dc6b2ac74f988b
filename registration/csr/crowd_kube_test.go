package csr_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm"
)

// A list of a cluster's requests that shows two keys refuses the others for
// some seconds.
func TestManyRequestsForOneClusterCauseOneList(t *testing.T) { synctest.Test(t, testManyRequests) }

func testManyRequests(t *testing.T) {
	const requests = 50
	objects := []client.Object{accepted("cluster1"), record("cluster1", "csr")}
	for i := range requests {
		objects = append(objects, requestOf(t, fmt.Sprint("csr", i), fmt.Sprint("agent", i), bootstrapUser))
	}
	lists := 0
	c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(regtest.Scheme(t)).WithObjects(objects...).Build(),
		interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				lists++
				return c.List(ctx, list, opts...)
			},
			SubResourceUpdate: func(ctx context.Context, c client.Client, _ string, o client.Object,
				_ ...client.SubResourceUpdateOption) error {
				return c.Update(ctx, o)
			}})
	h := newHub(t)
	driver,
		err := csr.NewHubDriver(csr.HubDriverOptions{Client: c, Reader: c, Events: h.events,
		BootstrapUsers: []string{bootstrapUser}})
	regtest.Must(t, err)
	reconcileAll := func(t *testing.T, wantLists int) (refused int) {
		t.Helper()
		lists = 0
		for i := range requests {
			if _, err := csr.Reconcile(t.Context(), driver, fmt.Sprint("csr", i)); err != nil {
				t.Fatal(err)
			}
			event := h.event()
			if strings.Contains(event, "SeveralRequests") &&
				strings.Contains(event, fmt.Sprintf(`the agents "agent%d" and `, i)) &&
				!strings.Contains(event, fmt.Sprintf(`request "csr%d" `, i)) {
				refused++
			}
		}
		if lists > wantLists {
			t.Errorf("%d lists, want at most %d", lists, wantLists)
		}
		return refused
	}
	const each = 2 // for an agent that a person approved, and for other keys
	if got := reconcileAll(t, each); got != requests {
		t.Errorf("%d requests are refused, want %d", got, requests)
	}
	time.Sleep(time.Minute)
	if got := reconcileAll(t, each); got != requests {
		t.Errorf("a minute later, %d requests are refused, want %d", got, requests)
	}
	for i := range requests - 1 { // the last one is left
		if err := c.Delete(t.Context(), //nolint:errcheck,forcetypeassert // made above
			&certificatesv1.CertificateSigningRequest{
				ObjectMeta: objects[2+i].(*certificatesv1.CertificateSigningRequest).ObjectMeta}); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Minute)
	if _, err := csr.Reconcile(t.Context(), driver, fmt.Sprint("csr", requests-1)); err != nil ||
		!strings.Contains(h.event(), "Approved") {
		t.Errorf("the last request is refused, %v", err)
	}
}

// gate is a reader whose lists of a cluster's requests wait until it opens.
type gate struct {
	client.Reader
	cluster string
	open    chan struct{}
}

func (g *gate) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var options client.ListOptions
	options.ApplyOptions(opts)
	if options.LabelSelector != nil && strings.HasSuffix(options.LabelSelector.String(), "="+g.cluster) {
		select {
		case <-g.open:
		case <-ctx.Done():
		}
	}
	return g.Reader.List(ctx, list, opts...)
}

// Requests that are no renewals take one of the approver's workers, however
// long each of them takes.
func TestManyRequestsForOneClusterDelayNoRenewal(t *testing.T) {
	k := newKube(t, kubetest.Start(t))
	k.runHub()
	k.Enroll("calm")
	regtest.Must(t, k.Admin.Create(t.Context(), &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "crowded"}}))
	k.Accept("crowded")
	k.stopHub()
	g := &gate{cluster: "crowded", open: make(chan struct{})}
	k.runHub(func(o *csr.HubDriverOptions) { g.Reader, o.Reader = o.Reader, g })
	bootstrap := k.As(regtest.BootstrapUser)
	for i := range 8 { // twice as many as there are workers, before the renewal
		k.Request("crowded", fmt.Sprint("agent", i), bootstrap)
	}
	renewal := k.Request("calm", "agent1", k.AsAgent("calm"))
	kubetest.Eventually(t, "the renewal is approved", func() bool {
		regtest.Must(t, k.Admin.Get(t.Context(), client.ObjectKeyFromObject(renewal), renewal))
		return len(renewal.Status.Conditions) > 0
	})
	if k.said.Says("SeveralRequests") {
		t.Error("the requests did not wait")
	}
	close(g.open)
	kubetest.Eventually(t, "the others are refused", func() bool {
		return k.said.Says("SeveralRequests", `both ask for cluster "crowded"`)
	})
}
