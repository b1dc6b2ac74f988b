package controllers_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

// The published FlowSchema takes the anonymous reads of discovery, and only
// those.
func TestPriorityOfDiscovery(t *testing.T) {
	cluster := kubetest.StartNew(t)
	publish(t, cluster)
	published := &flowcontrolv1.FlowSchema{}
	if err := cluster.Client().Get(t.Context(), client.ObjectKey{Name: "bootstrap-discovery"}, published); err != nil {
		t.Fatal(err)
	}
	admin, err := rest.HTTPClientFor(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	anonymous, node := cluster.IssuerClient(t), userClient(t, cluster, "system:node:a", "system:nodes")
	const info = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
	read := func(c *http.Client, path string) (status int, schema string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, addressOf(cluster, path), nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := c.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close() // status and header are all that counts
		return response.StatusCode, response.Header.Get("X-Kubernetes-Pf-Flowschema-Uid")
	}
	kubetest.Eventually(t, "the FlowSchema takes an anonymous read", func() bool {
		status, schema := read(anonymous, info)
		return status == http.StatusOK && schema == string(published.UID)
	})
	for name, row := range map[string]struct {
		client *http.Client
		path   string
	}{
		"an administrator":                {admin, info},
		"a node":                          {node, info},
		"an anonymous read of the issuer": {anonymous, "/openid/v1/jwks"},
		"an anonymous list":               {anonymous, "/api/v1/namespaces/kube-public/configmaps"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, schema := read(row.client, row.path); schema == "" || schema == string(published.UID) {
				t.Errorf("got the FlowSchema %q, want one of the API server's own", schema)
			}
		})
	}
	t.Run("a stalled anonymous reader delays anonymous readers alone", func(t *testing.T) {
		allowOne(t, cluster.Client())
		large := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: "cluster-info"}}
		padding := fmt.Appendf(nil, `{"data":{"padding":%q}}`, strings.Repeat("x", 16<<10))
		if err := cluster.Client().Patch(t.Context(), large, client.RawPatch(types.MergePatchType, padding)); err != nil {
			t.Fatal(err)
		}
		stall(t, cluster, info)
		kubetest.Eventually(t, "an anonymous read is throttled", func() bool {
			status, _ := read(anonymous, info)
			return status == http.StatusTooManyRequests
		})
		for name, c := range map[string]*http.Client{"an administrator": admin, "a node": node} {
			if status, _ := read(c, info); status == http.StatusTooManyRequests {
				t.Errorf("%s is throttled too", name)
			}
		}
	})
}

func userClient(t *testing.T, cluster *kubetest.Cluster, name string, groups ...string) *http.Client {
	t.Helper()
	config, _, err := cluster.Cluster.User(name, groups...)
	if err != nil {
		t.Fatal(err)
	}
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// allowOne leaves room for one request at a time on the published priority
// level, and refuses the others at once.
func allowOne(t *testing.T, c client.Client) {
	t.Helper()
	level := &flowcontrolv1.PriorityLevelConfiguration{}
	level.Name = "bootstrap-discovery"
	patch := `{"spec":{"limited":{"nominalConcurrencyShares":0,"borrowingLimitPercent":0,
		"limitResponse":{"type":"Reject","queuing":null}}}}`
	if err := c.Patch(t.Context(), level, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// stall begins an anonymous read, and reads nothing of the answer until the
// test ends. The API server cannot send it, and serves the request until then.
func stall(t *testing.T, cluster *kubetest.Cluster, path string) {
	t.Helper()
	config, err := rest.TLSConfigFor(rest.AnonymousClientConfig(cluster.Config()))
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true,
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 1}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, addressOf(cluster, path), nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode != http.StatusOK || response.ProtoMajor != 2 {
		t.Fatalf("got %s over %s, want 200 over HTTP/2", response.Status, response.Proto)
	}
}

func addressOf(cluster *kubetest.Cluster, path string) string {
	return strings.TrimSuffix(cluster.Config().Host, "/") + path
}
