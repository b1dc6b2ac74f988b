package identity_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/token"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor/identity"
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
	if report.ExitCode() != doctor.ExitPass || report.Of("token-request").Result != doctor.Pass {
		t.Errorf("got %s", report.Text(doctor.TextOptions{Verbose: true}))
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
