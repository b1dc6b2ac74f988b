package registration_test

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor/registration"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

const secretValue = "secretvaluesecretvalue"

func newClient(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(ocm.AddToScheme(scheme), addon.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	b := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...)
	for _, field := range []string{"type", "involvedObject.uid", "involvedObject.name"} {
		// as the API server, for Events that are read as unstructured ones
		b = b.WithIndex(&corev1.Event{}, field, func(o client.Object) []string {
			content, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(o) // it always is one
			value, _, _ := unstructured.NestedString(content, strings.Split(field, ".")...)
			return []string{value}
		})
	}
	return b.WithIndex(&appsv1.Deployment{}, "metadata.name", func(o client.Object) []string {
		return []string{o.GetName()}
	}).Build()
}

// joined is a hub with a cluster that it has accepted.
func joined() []client.Object {
	now := metav1.Now()
	condition := func(kind, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, LastTransitionTime: now}
	}
	return []client.Object{
		&ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster1", CreationTimestamp: now},
			Spec: ocm.ManagedClusterSpec{HubAcceptsClient: true},
			Status: ocm.ManagedClusterStatus{
				Conditions: []metav1.Condition{condition(ocm.ConditionHubAccepted, ocm.ReasonHubAccepted),
					condition(ocm.ConditionJoined, "ManagedClusterJoined"),
					condition(ocm.ConditionAvailable, "ManagedClusterAvailable")}}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: ocm.LeaseName},
			Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: time.Now()}}},
	}
}

// member is a managed cluster whose agent has the kubeconfig.
func member(kubeconfig string) []client.Object {
	const namespace = "open-cluster-management-agent"
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "registration-agent"}}
	deployment.Status.AvailableReplicas = 1
	deployment.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable,
		Status: corev1.ConditionTrue}}
	return []client.Object{deployment,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ocm.HubKubeconfigSecret},
			Data: map[string][]byte{"kubeconfig": []byte(kubeconfig), "cluster-name": []byte("cluster1")}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bootstrap-hub-kubeconfig"},
			Data: map[string][]byte{"kubeconfig": []byte(kubeconfig)}}}
}

func kubeconfig(cluster, user string) string {
	return `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"hub","cluster":{` + cluster +
		`}}],"users":[{"name":"agent","user":{` + user + `}}]}`
}

// What a kubeconfig of the agent's Secret may do on the machine of the person
// who runs the doctor.
func TestHostileKubeconfigs(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(server.Close)
	const token = `"token":"` + secretValue + `"`
	for name, tc := range map[string]struct{ cluster, user, want string }{
		"unverified TLS": {`"server":"` + server.URL + `","insecure-skip-tls-verify":true`, token,
			"insecure-skip-tls-verify"},
		"a CA that others have": {`"server":"` + server.URL + `"`, token, "certificate"},
		"a file": {`"server":"` + server.URL + `","certificate-authority":"/etc/hostname"`, token,
			"names a file"},
		"a file with a token": {`"server":"` + server.URL + `"`, `"tokenFile":"/etc/hostname"`, "names a file"},
		"a proxy":             {`"server":"` + server.URL + `","proxy-url":"http://127.0.0.1:1"`, token, "proxy-url"},
		"plain http":          {`"server":"http://127.0.0.1:1"`, token, "https"},
		"a program": {`"server":"` + server.URL + `"`,
			`"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"/bin/touch","interactiveMode":"Never"}`,
			"which the doctor does not run"},
		"an address without one": {`"server":"https://127.0.0.1:1"`, token, "cannot be reached from this machine"},
	} {
		t.Run(name, func(t *testing.T) {
			report := registration.Run(t.Context(),
				registration.Config{ClusterName: "cluster1", Hub: newClient(t, joined()...),
					Spoke: newClient(t, member(kubeconfig(tc.cluster, tc.user))...)})
			text := report.Text(doctor.TextOptions{Verbose: true, Width: 1000})
			encoded, err := json.Marshal(report)
			if err != nil || strings.Contains(text+string(encoded), secretValue) {
				t.Errorf("%v: the report shows a secret: %s", err, text)
			}
			if report.Result == doctor.Pass || !strings.Contains(text, tc.want) {
				t.Errorf("want %s:\n%s", tc.want, text)
			}
		})
	}
	if asked.Load() > 0 {
		t.Errorf("the doctor sent %d requests to a server that it cannot verify", asked.Load())
	}
}

// deployed is a member whose Deployment differs.
func deployed(kubeconfig string, change func(*appsv1.Deployment)) []client.Object {
	all := member(kubeconfig)
	change(all[0].(*appsv1.Deployment)) //nolint:errcheck,forcetypeassert // of member
	return all
}

// Each side alone, and names that do not fit.
func TestSides(t *testing.T) {
	unreachable := kubeconfig(`"server":"https://127.0.0.1:1"`, `"token":"`+secretValue+`"`)
	for name, tc := range map[string]struct {
		config registration.Config
		want   string
	}{
		"the hub alone proves nothing": {registration.Config{ClusterName: "cluster1", Hub: newClient(t, joined()...)},
			"? credential  not examined: pass the kubeconfig of the cluster"},
		"the cluster alone proves nothing": {registration.Config{ClusterName: "cluster1",
			Spoke: newClient(t, member(unreachable)...)}, "? decision    not examined: pass the kubeconfig of the hub"},
		"a name that is none": {registration.Config{ClusterName: "Cluster_1", Hub: newClient(t)}, "InvalidName"},
		"another cluster's Secret": {registration.Config{ClusterName: "cluster2",
			Spoke: newClient(t, member(unreachable)...)}, "AnotherClusterName"},
		"the agent of an operator": {registration.Config{ClusterName: "cluster1",
			Spoke: newClient(t, deployed("{}", func(d *appsv1.Deployment) {
				d.Name = "klusterlet-registration-agent"
			})...)}, "What its operator says:"},
		"another cluster's agent": {registration.Config{ClusterName: "cluster1",
			Spoke: newClient(t, deployed(unreachable, func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers = []corev1.Container{{Args: []string{"--cluster-name=cluster2"}}}
			})...)}, `The agent registers "cluster2", not "cluster1". [agent, AnotherClusterName]`},
		"no ManagedCluster": {registration.Config{ClusterName: "cluster1", Hub: newClient(t)}, "AgentNeverArrived"},
	} {
		t.Run(name, func(t *testing.T) {
			if report := registration.Run(t.Context(), tc.config); report.Result == doctor.Pass ||
				!strings.Contains(report.Text(doctor.TextOptions{Width: 200}), tc.want) {
				t.Errorf("want %s:\n%s", tc.want, report)
			}
		})
	}
}

// serving starts a hub, and returns a kubeconfig for it.
func serving(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	ca := base64.StdEncoding.EncodeToString(
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	return kubeconfig(`"server":"`+server.URL+`","certificate-authority-data":"`+ca+`"`, `"token":"`+secretValue+`"`)
}

// echo is a hub that answers everything with a status, a ManagedCluster of its
// own, and the credential.
func echo(t *testing.T, code int) (kubeconfigs string) {
	return serving(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(code)
		if code == http.StatusOK {
			_,
				_ = w.Write(
				[]byte(
					`{"apiVersion":"cluster.open-cluster-management.io/v1","kind":"ManagedCluster","metadata":{"name":"cluster1","uid":"theirs"}}`))
			return
		}
		_,
			_ = w.Write(
			[]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"you sent ` +
				r.Header.Get("Authorization")[len("Bearer "):] + `"}`))
	})
}

// What an agent, its Secret's server or a spoke's administrator may say does
// not make the report green, and shows no token.
func TestDeceptions(t *testing.T) {
	future := metav1.NewTime(time.Now().Add(10000 * time.Hour))
	for name, tc := range map[string]struct {
		code   int
		change func(hub, spoke []client.Object)
		want   string
	}{
		"a hub of its own":             {http.StatusOK, func([]client.Object, []client.Object) {}, "AnotherHub"},
		"a hub that repeats the token": {http.StatusForbidden, func([]client.Object, []client.Object) {}, "answers 403"},
		"a Lease of the future": {http.StatusForbidden, func(hub, _ []client.Object) {
			lease := hub[1].(*coordinationv1.Lease) //nolint:errcheck,forcetypeassert // of joined
			lease.Spec.RenewTime = &metav1.MicroTime{Time: future.Time}
		}, "which is in the future"},
		"an agent scaled to 0": {http.StatusOK, func(_, spoke []client.Object) {
			spoke[0].(*appsv1.Deployment).Status.AvailableReplicas = 0 //nolint:errcheck,forcetypeassert // of member
		}, "scaled to 0"},
	} {
		t.Run(name, func(t *testing.T) {
			hub, spoke := joined(), member(echo(t, tc.code))
			tc.change(hub, spoke)
			report := registration.Run(t.Context(),
				registration.Config{ClusterName: "cluster1", Hub: newClient(t, hub...), Spoke: newClient(t, spoke...)})
			text := report.Text(doctor.TextOptions{Verbose: true, Width: 1000})
			if report.Result == doctor.Pass || !strings.Contains(text, tc.want) || strings.Contains(text, secretValue) {
				t.Errorf("want %s:\n%s", tc.want, text)
			}
		})
	}
}
