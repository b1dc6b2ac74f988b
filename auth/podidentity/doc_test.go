package podidentity_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/auth/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m).Run()) }

// The package comment shows lines of the example, which compiles and runs.
func TestTheCodeOfThePackageCommentIsTheExample(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("example_provide_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(code), "package podidentity_test\n\n")
	var want strings.Builder
	for line := range strings.Lines(program) {
		if line == "\n" {
			want.WriteString("//\n")
		} else {
			want.WriteString("//\t" + line)
		}
	}
	_, rest, ok := strings.Cut(string(doc), want.String())
	if !ok {
		t.Errorf("doc.go differs from example_provide_test.go: copy these lines to it\n%s", want.String())
	}
	example, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	_, objects, _ := strings.Cut(rest, "# Objects")
	for line := range strings.Lines(objects) {
		if line, ok := strings.CutPrefix(line, "//\t"); ok {
			lines++
			if !strings.Contains(string(example), "\t"+line) {
				t.Errorf("the example lacks %s", line)
			}
		}
	}
	if lines < 20 {
		t.Errorf("%d lines of code", lines)
	}
}

// environment is an API server with the program of the example.
type environment struct {
	client.Client
	cluster       *kubetest.Cluster
	server, hooks string // addresses
	http          *http.Client
}

func newEnvironment(t *testing.T) *environment {
	t.Helper()
	w := &environment{cluster: kubetest.Start(t)}
	w.install(t)
	pem, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	certs := t.TempDir()
	for file, content := range map[string][]byte{"tls.crt": pem, "tls.key": key, "ca.crt": pem} {
		if err := os.WriteFile(filepath.Join(certs, file), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	w.http = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots}}}
	var listeners [2]net.Listener
	for i := range listeners {
		if listeners[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil { //nolint:noctx // does not wait
			t.Fatal(err)
		}
	}
	_ = listeners[1].Close() // for its port
	w.server, w.hooks = "https://"+listeners[0].Addr().String()+"/v1/credentials", "https://"+listeners[1].Addr().String()+"/pods"
	https := ctrlwebhook.NewServer(ctrlwebhook.Options{Host: "127.0.0.1", Port: listeners[1].Addr().(*net.TCPAddr).Port, CertDir: certs}) //nolint:forcetypeassert // of tcp
	ended := make(chan error, 1)
	go func() { ended <- provide(t.Context(), w.cluster.Config(), listeners[0], https, certs) }()
	t.Cleanup(func() { // after t.Context has ended
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *environment) install(t *testing.T) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	for _, document := range []string{v1alpha1.BindingCRD, v1alpha1.AllowListCRD, "apiVersion: v1\nkind: Namespace\nmetadata: {name: team-a}",
		"apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: reporting, namespace: team-a}"} {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
			t.Fatal(err)
		}
		if err := w.cluster.Client().Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "the API server serves the kinds", func() bool {
		var err error
		w.Client, err = client.New(w.cluster.Config(), client.Options{Scheme: scheme})
		return err == nil && w.List(t.Context(), &v1alpha1.IAMBindingList{}) == nil && w.List(t.Context(), &v1alpha1.IAMRoleAllowListList{}) == nil
	})
}

// await polls a real process.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("still not so: %s", what)
		}
	}
}

func (w *environment) post(t *testing.T, url, token string, body []byte) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	answer, err := w.http.Do(r)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// There is no AWS here, so the last step of the server fails.
func TestExampleServesPods(t *testing.T) {
	for name, value := range map[string]string{"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/nonexistent", "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
		"AWS_ACCESS_KEY_ID": "", "AWS_PROFILE": "", "AWS_WEB_IDENTITY_TOKEN_FILE": "", "AWS_CONTAINER_CREDENTIALS_FULL_URI": ""} {
		t.Setenv(name, value)
	}
	w := newEnvironment(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "reporting"},
		Spec: corev1.PodSpec{ServiceAccountName: "reporting", Containers: []corev1.Container{{Name: "app", Image: "app"}}}}
	if err := w.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience},
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}}}
	if err := w.SubResource("token").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "reporting"}}, request); err != nil {
		t.Fatal(err)
	}
	await(t, "the server answers", func() bool {
		return strings.Contains(w.post(t, w.server, request.Status.Token, nil), "NotBound")
	})
	if policy, err := bind(t.Context(), w.Client); err != nil || !strings.Contains(string(policy), `"prod.team-a.reporting"`) {
		t.Fatalf("%s: %v", policy, err)
	}
	await(t, "the server finds the binding, and no identity of its own", func() bool {
		return strings.Contains(w.post(t, w.server, request.Status.Token, nil), "the server has no identity that AWS accepts")
	})
	object, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	review := admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{UID: "1", Namespace: "team-a", Operation: admissionv1.Create,
			Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"}, Object: runtime.RawExtension{Raw: object}}}
	body, err := json.Marshal(review)
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the webhook injects", func() bool { return strings.Contains(w.post(t, w.hooks, "", body), `"patch":`) })
}
