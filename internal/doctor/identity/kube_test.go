package identity_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/token"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/identity"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

// onCluster examines a ServiceAccount of a real API server.
func onCluster(t *testing.T, cluster *kubetest.Cluster, access *rest.Config, key client.ObjectKey) identity.Config {
	t.Helper()
	c, err := client.New(access, client.Options{Scheme: cluster.Client().Scheme(), Mapper: cluster.Client().RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	return identity.Config{Provider: &token.Provider{}, Client: c, RESTConfig: access, ClusterName: "real", ServiceAccount: key,
		Options: []auth.Option{auth.WithAudiences("vault"), auth.WithPolicy(auth.Policy{Audiences: []string{"vault"}})}}
}

func realAccount(t *testing.T, cluster *kubetest.Cluster, name string) client.ObjectKey {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace(t), Name: name}}
	if err := cluster.Client().Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	return client.ObjectKeyFromObject(account)
}

func TestHealthyOnARealCluster(t *testing.T) {
	cluster := kubetest.Start(t)
	report := identity.Run(t.Context(), onCluster(t, cluster, cluster.Config(), realAccount(t, cluster, "app")))
	readable(t, report)
	if report.ExitCode() != doctor.ExitPass || report.Of("token-review").Result != doctor.Pass {
		t.Errorf("got %s", report.Text(doctor.TextOptions{Verbose: true}))
	}
}

func TestMissingNamespaceOnARealCluster(t *testing.T) {
	cluster := kubetest.Start(t)
	key := realAccount(t, cluster, "only-one")
	report := identity.Run(t.Context(), onCluster(t, cluster, cluster.Config(), client.ObjectKey{Namespace: "missing", Name: key.Name}))
	readable(t, report)
	want := "Namespace missing does not exist. A ServiceAccount " + key.Name + " exists in " + key.Namespace + "."
	if f := report.Worst(); f == nil || f.Message != want || f.Class != "ServiceAccountNotFound" {
		t.Errorf("got %s", report)
	}
}

// The commands of the report, run by an administrator, are enough.
func TestGrantedRightOnARealCluster(t *testing.T) {
	cluster := kubetest.Start(t)
	key := realAccount(t, cluster, "app")
	account := &corev1.ServiceAccount{}
	if err := cluster.Client().Get(t.Context(), key, account); err != nil {
		t.Fatal(err)
	}
	account.Annotations = map[string]string{aws.RoleARNAnnotation: roleARN}
	if err := cluster.Client().Update(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	user := cluster.User(t, "engineer of "+key.Namespace, key.Namespace, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}})
	config := onCluster(t, cluster, user, key)
	config.Provider, config.Options = &aws.Provider{}, []auth.Option{auth.WithSTSRegion("eu-central-1"), auth.WithHTTPClient(newCloud(t).Client())}
	report := identity.Run(t.Context(), config)
	readable(t, report)
	f := report.Worst()
	if f.Check != "service-account" || f.Class != "RightMissing" || len(f.Remedy.Commands) == 0 {
		t.Fatalf("got %s", report)
	}
	kubeconfig := cluster.Kubeconfig(t)
	for _, command := range f.Remedy.Commands {
		kubectl := exec.CommandContext(t.Context(), "bash", "-euc", strings.ReplaceAll(command, "ADMIN_KUBECONFIG", kubeconfig)) //nolint:gosec // the doctor's own remedy
		kubectl.Env = append(os.Environ(), "PATH="+os.Getenv("KUBEBUILDER_ASSETS")+":"+os.Getenv("PATH"))
		if out, err := kubectl.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", command, err, out)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // the API server learns of rights with a delay
	defer cancel()
	for report.Of("token-request").Result != doctor.Pass && ctx.Err() == nil {
		report = identity.Run(ctx, config)
	}
	if report.Of("token-request").Result != doctor.Pass {
		t.Errorf("got %s", report)
	}
}

// The client of a manager, which each reconciler has, starts no watch of pods and ServiceAccounts.
func TestClientOfAManagerStartsNoWatch(t *testing.T) {
	cluster := kubetest.Start(t)
	key := realAccount(t, cluster, "app")
	name := "manager of " + key.Namespace
	user := cluster.User(t, name, key.Namespace, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods", "serviceaccounts"}, Verbs: []string{"get"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{"create"}})
	mgr, err := ctrl.NewManager(user, ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}, Logger: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	<-mgr.Elected()
	config := onCluster(t, cluster, user, key)
	config.Client, config.Pod = mgr.GetClient(), client.ObjectKey{Namespace: key.Namespace, Name: "missing"}
	if report := identity.Run(t.Context(), config); report.Of("service-account").Result != doctor.Pass {
		t.Errorf("got %s", report)
	}
	requests := cluster.Audit(t, name)
	if len(requests) == 0 {
		t.Error("no requests")
	}
	for _, r := range requests {
		if r.Verb == "watch" || r.Verb == "list" {
			t.Errorf("%+v", r)
		}
	}
}

// A real API server creates the copy of a real pod in the dry run, and stores nothing.
func TestPodWithoutIdentityOnARealCluster(t *testing.T) {
	cluster := kubetest.Start(t)
	key := realAccount(t, cluster, "app")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "app-0"},
		Spec: corev1.PodSpec{ServiceAccountName: key.Name, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	if err := cluster.Client().Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	config := onCluster(t, cluster, cluster.Config(), key)
	config.Provider, config.Options, config.Pod = &aws.Provider{}, []auth.Option{auth.WithSTSRegion("eu-central-1"), auth.WithHTTPClient(newCloud(t).Client())}, client.ObjectKeyFromObject(pod)
	report := identity.Run(t.Context(), config)
	readable(t, report)
	if f := report.Of("pod"); f.Result != doctor.Fail || !strings.HasSuffix(f.Message, "nor in a copy.") {
		t.Errorf("%+v", f)
	}
	pods := &corev1.PodList{}
	if err := cluster.Client().List(t.Context(), pods, client.InNamespace(key.Namespace)); err != nil || len(pods.Items) != 1 {
		t.Errorf("%d pods, %v", len(pods.Items), err)
	}
}
