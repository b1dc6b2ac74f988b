package doctorcmd

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
)

func TestDoctorReadsBoundedAnswers(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = z.Write([]byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"`))
		_, _ = z.Write(make([]byte, 33<<20))
		_ = z.Close()
	}))
	defer server.Close()
	for name, kube := range doctorClients(t, server.URL) {
		err := kube.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: "b"}, &corev1.Pod{})
		if err == nil || !strings.Contains(err.Error(), "too large") {
			t.Errorf("%s: an answer of 33 MiB gives %v", name, err)
		}
	}
}

// doctorClients are the clients of all targets, for one API server.
func doctorClients(t *testing.T, server string) map[string]client.Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	writeKubeconfig(t, path, kubeconfigThrough(server, ""))
	config, _, err := cli.KubeFile{Path: path}.Config()
	if err != nil {
		t.Fatal(err)
	}
	kube, err := newDoctorClient(config)
	if err != nil {
		t.Fatal(err)
	}
	cluster, _, err := (&examiner{clients: &cli.Clients{}}).connect(cli.KubeFile{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return map[string]client.Client{"identity": kube, "others": cluster}
}

// An API server that sends its callers elsewhere gets nobody's credentials
// there.
func TestDoctorFollowsNoRedirect(t *testing.T) {
	var asked atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer other.Close()
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect,
		http.StatusPermanentRedirect} {
		server := httptest.NewServer(http.RedirectHandler(other.URL, status))
		for name, kube := range doctorClients(t, server.URL) {
			if err := kube.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: "b"}, &corev1.Pod{}); err == nil ||
				asked.Load() != 0 {
				t.Errorf("%s: %d gives %v, and the other server got %d requests", name, status, err, asked.Load())
			}
		}
		server.Close()
	}
}

// The first line of a report names the API server, whose address may hold a
// password.
func TestDoctorKeepsThePasswordOfAnAddress(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	writeKubeconfig(t, path, kubeconfigThrough("https://me:hunter2@127.0.0.1:1/prefix", ""))
	_, name, err := (&examiner{clients: &cli.Clients{}}).connect(cli.KubeFile{Path: path})
	if err != nil || strings.Contains(name, "hunter2") || !strings.Contains(name, "127.0.0.1:1/prefix") {
		t.Errorf("%s, %v", name, err)
	}
}

func kubeconfigThrough(server, proxy string) string {
	return `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],` +
		`"users":[{"name":"u","user":{"token":"secret"}}],"clusters":[{"name":"c","cluster":{"server":"` + server +
		`","proxy-url":"` + proxy + `"}}]}`
}

func writeKubeconfig(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The last step of each report removes what was sent to an API server.
func TestFinishCleansEachFinding(t *testing.T) {
	const secret = "kube-secret-0123456789abcdef"
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	x := &examiner{clients: &cli.Clients{}}
	config := &rest.Config{Host: server.URL, BearerToken: secret}
	if err := x.clients.Watch(config, io.Discard); err != nil {
		t.Fatal(err)
	}
	c, err := rest.UnversionedRESTClientFor(dynamic.ConfigFor(config))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Get().AbsPath("/").Do(t.Context()).Error(); err == nil {
		t.Fatal("the server has an answer")
	}
	f := doctor.Unclear(doctor.Do("remove "+secret), "it sent %s", secret)
	x.finish(&f)
	if got := f.Message + f.Remedy.Text; strings.Contains(got, secret) {
		t.Errorf("got %q, which holds the credential", got)
	}
}
