package main

import (
	"io"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/document"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
)

// asProgram makes the test binary run the program instead of the tests.
const asProgram = "IAM_CREDENTIALS_PROVIDER_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	logTo(io.Discard)
	os.Exit(kubetest.Main(m).Run())
}

func TestFlagsThatCannotWork(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no command":         {nil, "name the command server, webhook or certificates"},
		"unknown command":    {[]string{"proxy"}, `unknown command "proxy"`},
		"argument":           {[]string{"server", "now"}, "now"},
		"missing kubeconfig": {[]string{"server", "--audience=x", "--cluster=x"}, "set KUBECONFIG"},
		"no audience":        {[]string{"server", "--cluster=x"}, `"audience" not set`},
		"no cluster":         {[]string{"server", "--audience=x"}, "--cluster is missing"},
		"empty cluster":      {[]string{"server", "--audience=x", "--cluster="}, "CLUSTER"},
		"no image":           {[]string{"webhook", "--audience=x"}, `"image" not set`},
		"no quantity": {[]string{"webhook", "--audience=x", "--image=x", "--sidecar-requests=memory=lots"},
			`--sidecar-requests: "lots" is no quantity of "memory"`},
		"no CPU limit": {[]string{"webhook", "--audience=x", "--image=x", "--sidecar-cpu-limit=fast"},
			`--sidecar-cpu-limit: "fast"`},
		"flag of the other": {[]string{"server", "--image=x"}, "--image"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", "/nonexistent")
			if err := run(t.Context(), test.args, io.Discard, io.Discard); err == nil ||
				!strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
	if err := run(t.Context(), []string{"server", "--help"}, io.Discard, io.Discard); err != nil {
		t.Errorf("--help: %v", err)
	}
}

func TestDocumentedFlags(t *testing.T) {
	var documented []string
	for _, row := range document.Read(t, "cmd/iam-credentials-provider/README.md").Rows("flag") {
		documented = append(documented, document.Names(row[0])...)
	}
	for _, cmd := range newRoot(io.Discard).Commands() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !slices.Contains(documented, "--"+f.Name) {
				t.Errorf("README.md lacks --%s of %s", f.Name, cmd.Name())
			}
		})
	}
}

func TestOutsideOfAClusterOneLineIsPrinted(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"server", "--audience=x", "--cluster=x"}, {"webhook", "--audience=x", "--image=x"},
		{"certificates"}} {
		t.Run(args[0], func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), program, args...)
			cmd.Env = []string{asProgram + "=1", "HOME=" + t.TempDir()}
			out, err := cmd.CombinedOutput()
			if want := "iam-credentials-provider: run it in a cluster, or set KUBECONFIG\n"; err == nil || string(out) != want {
				t.Errorf("%v: %q, want %q", err, out, want)
			}
		})
	}
}

func TestCachedObjectsAreStripped(t *testing.T) {
	now := metav1.Now()
	kept := metav1.ObjectMeta{Namespace: "team-a", Name: "b", UID: "u", ResourceVersion: "1", Generation: 2,
		DeletionTimestamp: &now}
	full, much := kept, strings.Repeat("x", 200<<10) // together, what etcd takes
	full.GenerateName = much
	full.Annotations, full.Labels, full.Finalizers = map[string]string{corev1.LastAppliedConfigAnnotation: much},
		map[string]string{much: "b"}, []string{much}
	full.ManagedFields, full.OwnerReferences = []metav1.ManagedFieldsEntry{{Manager: "x"}},
		[]metav1.OwnerReference{{Name: "x"}}
	for name, object := range map[string]client.Object{
		"IAMBinding":       &v1alpha1.IAMBinding{ObjectMeta: full},
		"IAMRoleAllowList": &v1alpha1.IAMRoleAllowList{ObjectMeta: full},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := strip(object); err != nil {
				t.Fatal(err)
			}
			if got := meta.AsPartialObjectMetadata(object).ObjectMeta; !reflect.DeepEqual(got, kept) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// The webhook reads which ServiceAccount and which containers a binding names.
// Tenants write the rest, and the server its status.
func TestWebhookCachesNoRole(t *testing.T) {
	kept := v1alpha1.IAMBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "b"},
		Spec: v1alpha1.IAMBindingSpec{ServiceAccountRef: v1alpha1.ServiceAccountReference{Name: "app"},
			Containers: []string{"app"}}}
	full := kept
	full.Labels = map[string]string{"a": "b"}
	full.Spec.AWS = v1alpha1.AWSRole{RoleARN: "r", SessionTags: map[string]v1alpha1.TagValue{"a": "b"},
		SessionPolicy: "{}"}
	full.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted}}
	if got, err := stripForWebhook(&full); err != nil || !reflect.DeepEqual(got, &kept) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// Another host could answer for the API server, and give the program keys, CAs
// and bindings of its own.
func TestUnverifiedAPIServerIsRefused(t *testing.T) {
	for name, kube := range map[string]*rest.Config{
		"insecure TLS": {Host: "https://kube.example.com", TLSClientConfig: rest.TLSClientConfig{Insecure: true}},
		"http":         {Host: "http://kube.example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			for program, run := range map[string]func() error{
				"server":       func() error { return runServer(t.Context(), kube, serverOptions{}) },
				"certificates": func() error { return runCertificates(t.Context(), kube, certificateOptions{}) },
				"webhook": func() error {
					return runWebhook(t.Context(), kube, webhookOptions{common: common{listen: "127.0.0.1:0"}, cpuLimit: "1"})
				},
			} {
				if err := run(); err == nil || !strings.Contains(err.Error(), "could answer for it") {
					t.Errorf("%s: %v", program, err)
				}
			}
		})
	}
}
