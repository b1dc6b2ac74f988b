package main

// These tests need the repository. They are not for your copy.

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/cachetest"
	"github.com/workloadid/workloadid/internal/testing/document"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

func TestMain(m *testing.M) {
	logTo(io.Discard)
	goleak.VerifyTestMain(kubetest.Main(m))
}

// The controller runs on a real API server with exactly the rights of
// config/controller.
func TestControllerWithShippedRights(t *testing.T) {
	cluster := kubetest.Start(t)
	applyManifest(t, cluster)
	cloud := testenv.Cloud(t)
	tenant := cluster.Namespace(t)
	cloud.AWS().AddOIDCProvider(account, cluster.IssuerURL(), cluster.IssuerClient(t), aws.DefaultAudience)
	cloud.AWS().SetRole(role,
		cloudtest.Trust{Issuer: cluster.IssuerURL(), Subjects: []string{"system:serviceaccount:" + tenant + ":app"}})

	stop := startController(t, cluster, cloud)
	defer stop()
	for _, o := range []client.Object{
		testenv.ServiceAccount(tenant, "app", aws.RoleARNAnnotation, role),
		testenv.ServiceAccount(tenant, "thief", aws.RoleARNAnnotation, role),
		configMap(tenant, "good", "app"), configMap(tenant, "bad", "thief"),
	} {
		if err := cluster.Client().Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	kubetest.Eventually(t, "the identity is stored", func() bool {
		var obj corev1.ConfigMap
		err := cluster.Client().Get(t.Context(), client.ObjectKey{Namespace: tenant, Name: "good"}, &obj)
		return err == nil && strings.Contains(obj.Data["identity"], "assumed-role/tenant/"+tenant+".app")
	})
	kubetest.Eventually(t, "an event says what is wrong", func() bool {
		var events corev1.EventList
		err := cluster.Client().List(t.Context(), &events, client.InNamespace(tenant))
		for _, e := range events.Items {
			if e.InvolvedObject.Name == "bad" &&
				strings.Contains(e.Message, "Not authorized to perform sts:AssumeRoleWithWebIdentity") {
				return true
			}
		}
		return err != nil
	})
}

// startController runs the program as the ServiceAccount of the manifest, until
// the test or stop ends it.
func startController(t *testing.T, cluster *kubetest.Cluster, cloud *cloudtest.Cloud) (stop func()) {
	t.Helper()
	const user = "system:serviceaccount:workloadid-example:controller"
	config, _, err := cluster.Cluster.User(user)
	if err != nil {
		t.Fatal(err)
	}
	cluster.Await(t, authorizationv1.SubjectAccessReviewSpec{User: user,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "create", Resource: "serviceaccounts", Subresource: "token"}})
	o, err := parseFlags([]string{"--metrics-bind-address=0", "--health-probe-bind-address=0", "--leader-elect"},
		t.Output())
	if err != nil {
		t.Fatal(err)
	}
	o.namespace = "workloadid-example"
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- start(ctx, config, o,
			&Reconciler{AWS: &aws.Provider{}, HTTPClient: cloud.Client(),
				Options: []auth.Option{auth.WithHTTPClient(cloud.Client())}})
	}()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func applyManifest(t *testing.T, cluster *kubetest.Cluster) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "config", "controller", "controller.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
			t.Fatalf("%v: %s", err, document)
		}
		if err := cluster.Client().Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPagesShowCompiledCode(t *testing.T) {
	document.Read(t, "README.md").Shows("reconciler.go", "// TenantClient returns")
	page := document.Read(t, "docs/workload-identity.md")
	page.Shows("reconciler.go", "// Reconciler writes")
	page.Shows("main.go", "// cacheOptions lets")
}

// Tenants write all that the controller caches.
func TestCacheKeepsLittle(t *testing.T) {
	for name, row := range map[string]struct {
		transform toolscache.TransformFunc
		object    client.Object
	}{
		"ServiceAccounts": {auth.ServiceAccountTransform(&aws.Provider{}),
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{aws.RoleARNAnnotation: ""}}}},
		"ConfigMaps": {stripConfigMap,
			&corev1.ConfigMap{Data: map[string]string{"serviceAccountName": "", "region": "", "identity": ""}}},
	} {
		t.Run(name, func(t *testing.T) { cachetest.Check(t, row.transform, row.object) })
	}
}

// The README asks to copy these files.
func TestCopyCompilesInAModuleOfItsOwn(t *testing.T) {
	folder := t.TempDir()
	for _, file := range []string{"main.go", "reconciler.go", "reconciler_test.go", "../../go.mod", "../../go.sum"} {
		content, err := os.ReadFile(filepath.FromSlash(file))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, filepath.Base(file)), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const module = "github.com/workloadid/workloadid"
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"mod edit -module example.com/controller -require " + module + "@v0.1.0 -replace " +
		module + "=" + root, "vet -mod=mod ."} {
		run := exec.CommandContext(t.Context(), "go", strings.Fields(command)...) //nolint:gosec // the commands above
		run.Dir, run.Env = folder, append(os.Environ(), "GOWORK=off", "GOPROXY=off")
		if out, err := run.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", command, err, out)
		}
	}
}
