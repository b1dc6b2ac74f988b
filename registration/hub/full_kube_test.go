package hub_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/document"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

// storage is the section about what fills etcd.
func storage(t *testing.T) document.Page {
	t.Helper()
	return document.Read(t, "docs/registration-operate.md").Section("What one cluster can store")
}

// kubectl runs the documented commands of kubectl in one block.
func (k *hubKube) kubectl(t *testing.T, block string) {
	t.Helper()
	kubeconfig := k.Hub.Kubeconfig(t)
	for line := range strings.Lines(block) {
		args, ok := strings.CutPrefix(line, "kubectl --context hub ")
		if !ok {
			continue
		}
		cmd := exec.CommandContext(t.Context(), filepath.Join(kubetest.Assets(t), "kubectl"),
			strings.Fields(args)...) //nolint:gosec // a program of our own build
		cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
	}
}

// etcdAnswer has of the answers of etcd what etcdctl needs.
type etcdAnswer struct {
	Header struct{ Revision string }
	Alarms []struct{ MemberID string }
}

// etcd calls a method of etcd, as etcdctl does.
func (k *hubKube) etcd(t *testing.T, method, body string) (answer etcdAnswer) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, k.Hub.EtcdURL()+"/v3/"+method,
		strings.NewReader(body))
	regtest.Must(t, err)
	response, err := http.DefaultClient.Do(request)
	regtest.Must(t, err)
	defer response.Body.Close() //nolint:errcheck // it is read
	content, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK || json.Unmarshal(content, &answer) != nil {
		t.Fatalf("etcd %s: %v, %s %s", method, err, response.Status, content)
	}
	return answer
}

// wantNoSpace checks that etcd has refused a write.
func wantNoSpace(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), "database space exceeded") {
		t.Errorf("%s in a full etcd: %.300v", what, err)
	}
}

// A full etcd takes deletions alone.
func TestAccessEndsInAFullEtcd(t *testing.T) {
	blocks := storage(t).Blocks("sh")
	if len(blocks) != 3 {
		t.Fatalf("the page has %d blocks of commands, want those for a cluster, for a token and for room", len(blocks))
	}
	quota := kubetest.Flag{Name: "quota-backend-bytes", Value: "33554432", Etcd: true}
	k := startReleasedOn(t, kubetest.StartNew(t, quota))
	agents := map[string]client.Client{}
	stop := k.run(t, k.controllerConfig(), 4, newHubDriver("one", driverAnnotation))
	for _, name := range []string{"cluster1", "denied", "other"} {
		agents[name] = k.accepted(t, name)
	}
	stop()
	if err := setAccepted(t, k.Admin, "denied", false); err != nil { // while no hub program runs
		t.Fatal(err)
	}
	token := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-abcdef"},
		Type: corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{"token-id": "abcdef", "token-secret": "0123456789abcdef",
			"usage-bootstrap-authentication": "true", "auth-extra-groups": registration.BootstrapGroup}}
	regtest.Must(t, k.Admin.Create(t.Context(), token))
	bearer := rest.AnonymousClientConfig(k.Hub.Config())
	bearer.BearerToken = "abcdef.0123456789abcdef"
	bootstrap := regtest.NewClient(t, bearer)
	reads := func(c client.Client, name string) error {
		return c.Get(t.Context(), client.ObjectKey{Name: name}, &ocm.ManagedCluster{})
	}
	kubetest.Eventually(t, "the bootstrap token authenticates", func() bool { return reads(bootstrap, "other") == nil })

	fill := func(i, size int) error {
		return k.Admin.Create(t.Context(),
			&corev1.ConfigMap{BinaryData: map[string][]byte{"a": bytes.Repeat([]byte{1}, size)},
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("fill-%d-%d", size, i)}})
	}
	for _, size := range []int{500_000, 1} { // the alarm rises at the first write that is refused
		err := error(nil)
		for i := 0; err == nil && i < 100; i++ {
			err = fill(i, size)
		}
		wantNoSpace(t, "a ConfigMap", err)
	}
	wantNoSpace(t, "wid hub deny", setAccepted(t, k.Admin, "cluster1", false))
	shutOut := func(t *testing.T, name string) {
		t.Helper()
		kubetest.Eventually(t, "the agent has no rights", func() bool {
			lease := client.ObjectKey{Namespace: name, Name: ocm.LeaseName}
			return apierrors.IsForbidden(reads(agents[name], name)) &&
				apierrors.IsForbidden(agents[name].Get(t.Context(), lease, &coordinationv1.Lease{}))
		})
		for _, o := range bindingsFor(name) {
			if err := k.Admin.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
				t.Errorf("the binding %s: %v", o.GetName(), err)
			}
		}
	}
	regtest.Must(t, reads(agents["cluster1"], "cluster1"))
	k.run(t, k.controllerConfig(), 4, newHubDriver("one", driverAnnotation))
	k.Step("a denied cluster, by the hub program", func(t *testing.T) { shutOut(t, "denied") })
	k.Step("an accepted cluster, by the documented commands", func(t *testing.T) {
		k.kubectl(t, blocks[0].Text)
		shutOut(t, "cluster1")
	})
	k.Step("a bootstrap user, by the documented command", func(t *testing.T) {
		k.kubectl(t, blocks[1].Text)
		kubetest.Eventually(t, "the token is refused", func() bool {
			return apierrors.IsUnauthorized(reads(bootstrap, "other"))
		})
	})
	if err := reads(agents["other"], "other"); err != nil {
		t.Errorf("another cluster: %v", err)
	}
	k.Step("a denial, once there is room", func(t *testing.T) {
		k.kubectl(t, blocks[2].Text)
		regtest.Must(t, k.Admin.DeleteAllOf(t.Context(), &corev1.ConfigMap{}, client.InNamespace("default")))
		revision := k.etcd(t, "maintenance/status", "{}").Header.Revision
		k.etcd(t, "kv/compaction", fmt.Sprintf(`{"revision":%q,"physical":true}`, revision))
		k.etcd(t, "maintenance/defragment", "{}")
		for _, a := range k.etcd(t, "maintenance/alarm", `{"action":"GET"}`).Alarms {
			k.etcd(t, "maintenance/alarm", fmt.Sprintf(`{"action":"DEACTIVATE","alarm":"NOSPACE","memberID":%q}`, a.MemberID))
		}
		kubetest.Eventually(t, "etcd takes the denial", func() bool {
			return setAccepted(t, k.Admin, "cluster1", false) == nil
		})
		k.AwaitReason("cluster1", ocm.ConditionHubAccepted, ocm.ReasonHubDenied)
		shutOut(t, "cluster1")
	})
}

// tripper is a transport.
type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The documented priority level takes certificate requests and ManagedClusters
// of all users, and each write of agents.
func TestDocumentedPriorityLevel(t *testing.T) {
	k := startReleased(t)
	for _, block := range storage(t).Blocks("yaml") {
		kubetest.Apply(t, k.Admin, block.Text)
		t.Cleanup(func() { kubetest.Delete(t, k.Admin, block.Text) })
	}
	schema := &flowcontrolv1.FlowSchema{}
	regtest.Must(t, k.Admin.Get(t.Context(), client.ObjectKey{Name: "open-cluster-management-agents"}, schema))
	csr := authorizationv1.ResourceAttributes{Verb: "create", Group: csrGroup, Resource: "certificatesigningrequests"}
	k.Hub.Await(t, authorizationv1.SubjectAccessReviewSpec{User: "bootstrap",
		Groups:             []string{registration.BootstrapGroup},
		ResourceAttributes: &csr})
	level := func(user string, groups []string, do func(client.Client)) (uid string) {
		config := k.Hub.Config()
		config.Impersonate = rest.ImpersonationConfig{UserName: user,
			Groups: append(slices.Clone(groups), "system:authenticated")}
		config.Wrap(func(rt http.RoundTripper) http.RoundTripper {
			return tripper(func(r *http.Request) (*http.Response, error) {
				response, err := rt.RoundTrip(r)
				if err == nil && !strings.HasPrefix(r.URL.Path, "/api/v1/") && strings.Contains(r.URL.Path, "/v1/") {
					uid = response.Header.Get("X-Kubernetes-Pf-Flowschema-Uid")
				}
				return response, err
			})
		})
		do(regtest.NewClient(t, config))
		return uid
	}
	request := func(c client.Client) { _ = c.Create(t.Context(), newRequest(t, 0), client.DryRunAll) }
	read := func(c client.Client) { _ = c.Get(t.Context(), client.ObjectKey{Name: "a"}, &ocm.ManagedCluster{}) }
	write := func(c client.Client) { _ = setAccepted(t, c, "a", false) }
	status := func(c client.Client) {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{}}`))
		_ = c.Status().Patch(t.Context(), managedCluster("a"), patch, client.DryRunAll)
	}
	create := func(c client.Client) { _ = c.Create(t.Context(), managedCluster("b"), client.DryRunAll) }
	agent := []string{registration.ClusterGroup("a"), ocm.ManagedClustersGroup}
	kubetest.Eventually(t, "the FlowSchema is in force", func() bool {
		return level("bootstrap", []string{registration.BootstrapGroup}, request) == string(schema.UID)
	})
	for _, row := range []struct {
		name   string
		groups []string
		do     func(client.Client)
		want   bool
	}{
		{"a ManagedCluster of a bootstrap user", []string{registration.BootstrapGroup}, create, true},
		{"a request of an agent", agent, request, true},
		{"a write of an agent", agent, write, true},
		{"a read of an agent", agent, read, false},
		{"a status of a hub program", []string{"system:serviceaccounts"}, status, false},
		{"a patch of a hub program, queued by user", []string{"system:serviceaccounts"}, write, true},
		{"a request of a node", []string{"system:nodes"}, request, false},
	} {
		k.Step(row.name, func(t *testing.T) {
			if uid := level("user", row.groups, row.do); uid == "" || row.want != (uid == string(schema.UID)) {
				t.Errorf("the FlowSchema has the UID %q", uid)
			}
		})
	}
}
