package main

import (
	"compress/gzip"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestDoctorReadsBoundedAnswers(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = z.Write([]byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"`))
		_, _ = z.Write(make([]byte, 17<<20))
		_ = z.Close()
	}))
	defer server.Close()
	kube, err := newDoctorClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	err = kube.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: "b"}, &corev1.Pod{})
	if err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("an answer of 17 MiB gives %v", err)
	}
}

func TestDoctorFollowsNoRedirect(t *testing.T) {
	var asked atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	kube, err := newDoctorClient(&rest.Config{Host: server.URL, BearerToken: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	if err := kube.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: "b"}, &corev1.Pod{}); err == nil || asked.Load() != 0 {
		t.Errorf("a redirect gives %v, and the other server got %d requests", err, asked.Load())
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	writeKubeconfig(t, path, kubeconfigThrough(server.URL, ""))
	reader, _, err := (&examiner{}).readerOf(path, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := reader.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: "b"}, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod"}}); err == nil || asked.Load() != 0 {
		t.Errorf("a redirect gives %v, and the other server got %d requests", err, asked.Load())
	}
}

func TestDoctorKeepsThePasswordOfAProxy(t *testing.T) {
	t.Setenv(depthVariable, "") // clusterConfig counts in the environment
	for _, proxy := range []string{"http://me:hunter2@proxy:port", "ftp://me:hunter2@proxy", "http://me:hunter2@pro xy", "%hunter2"} {
		path := filepath.Join(t.TempDir(), "kubeconfig")
		writeKubeconfig(t, path, kubeconfigThrough("https://127.0.0.1:1", proxy))
		_, _, err := (&examiner{}).readerOf(path, "")
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("readerOf: %v", err)
		}
		_, err = (&identity{kubeconfig: path}).clusterConfig()
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("clusterConfig: %v", err)
		}
	}
}

func kubeconfigThrough(server, proxy string) string {
	return `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],` +
		`"users":[{"name":"u","user":{"token":"secret"}}],"clusters":[{"name":"c","cluster":{"server":"` + server + `","proxy-url":"` + proxy + `"}}]}`
}

func writeKubeconfig(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
