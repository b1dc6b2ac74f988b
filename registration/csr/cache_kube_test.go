package csr_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
)

func heap() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc) //nolint:gosec // it fits
}

// Bootstrap users fill the hub with requests and clusters of 14 KiB. Each takes about 3 KiB of the hub's memory, with its Event and its
// retry. The heap also has what the test itself leaves.
func TestRequestsAndClustersTakeLittleMemory(t *testing.T) {
	const objects, size, most = 250, 14 << 10, 8 << 10
	k := &kube{World: regtest.New(t), said: &regtest.Recorder{}}
	var cache client.Reader
	k.RunHub(func(mgr ctrl.Manager) (hub.Options, error) {
		cache = mgr.GetCache()
		recorder := mgr.GetEventRecorder("hub")
		driver, err := csr.NewHubDriver(csr.HubDriverOptions{Client: mgr.GetClient(), Events: recorder, BootstrapGroups: []string{registration.BootstrapGroup}})
		return hub.Options{Drivers: []registration.HubDriver{driver}, Default: registration.AuthTypeCSR, Recorder: recorder}, err
	})
	filled := client.MatchingLabels{"test": "filled"}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := k.Admin.DeleteAllOf(ctx, &certificatesv1.CertificateSigningRequest{}, filled); err != nil {
			t.Error(err)
		}
		if err := k.Admin.DeleteAllOf(ctx, &ocm.ManagedCluster{}, filled); err != nil {
			t.Error(err)
		}
	})
	all := func(cluster string) int {
		requests, clusters := &metav1.PartialObjectMetadataList{}, &ocm.ManagedClusterList{}
		requests.SetGroupVersionKind(certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequestList"))
		if cache.List(t.Context(), requests, client.MatchingLabels{ocm.ClusterNameLabel: cluster}) != nil || cache.List(t.Context(), clusters, filled) != nil {
			return -1
		}
		return len(requests.Items) + len(clusters.Items)
	}
	regtest.Eventually(t, "the hub runs", func() bool { return all("filled0") == 0 })
	before := heap()
	key := ecKey(t)
	for i := range objects {
		request := asks(t, "filled0", subject("filled0", "agent1"), key)
		request.Name, request.CreationTimestamp, request.Labels["test"] = fmt.Sprintf("filled0-%d", i), metav1.Time{}, "filled"
		request.Spec.Request = append(bytes.Repeat([]byte("x\n"), size/3), request.Spec.Request...) // base64 counts
		cluster := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("filled%d", i), Labels: filled, Annotations: map[string]string{"x": strings.Repeat("x", size)}}}
		for _, o := range []client.Object{request, cluster} {
			if err := k.Admin.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}
	regtest.Eventually(t, "the hub has seen all", func() bool { return all("filled0") == 2*objects })
	if grew := heap() - before; grew > 2*objects*most {
		t.Errorf("the hub takes %d bytes for each", grew/(2*objects))
	}
	runtime.KeepAlive(cache)
}
