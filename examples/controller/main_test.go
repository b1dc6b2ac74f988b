package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/document"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

func TestMain(m *testing.M) {
	logTo(io.Discard)
	goleak.VerifyTestMain(kubetest.Main(m))
}

const (
	account = "123456789012"
	role    = "arn:aws:iam::" + account + ":role/tenant"
)

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
	eventually(t, "the identity is stored", func() bool {
		var obj corev1.ConfigMap
		err := cluster.Client().Get(t.Context(), client.ObjectKey{Namespace: tenant, Name: "good"}, &obj)
		return err == nil && strings.Contains(obj.Data["identity"], "assumed-role/tenant/"+tenant+".app")
	})
	eventually(t, "an event says what is wrong", func() bool {
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

func configMap(namespace, name, serviceAccount string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		Labels: map[string]string{label: "aws"}},
		Data: map[string]string{"serviceAccountName": serviceAccount, "region": "eu-central-1"}}
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

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	const patience = time.Minute
	condition := func(context.Context) (bool, error) { return done(), nil }
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, condition); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func TestPagesShowCompiledCode(t *testing.T) {
	document.Read(t, "README.md").Shows("reconciler.go", "// TenantClient returns")
	page := document.Read(t, "docs/workload-identity.md")
	page.Shows("reconciler.go", "// Reconciler writes")
	page.Shows("main.go", "// cacheOptions lets")
}
