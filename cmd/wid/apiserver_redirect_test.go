package main

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// An API server that sends its callers elsewhere gets nobody's credentials there.
func TestRedirectOfAPIServer(t *testing.T) {
	var stolen atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stolen.Add(1) }))
	defer elsewhere.Close()
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL+r.URL.Path, status)
		}))
		config := &rest.Config{Host: server.URL, BearerToken: "the-user's"}
		boundAnswers(config)
		kube, err := newDoctorClient(config)
		if err != nil {
			t.Fatal(err)
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}}
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err == nil || stolen.Load() != 0 {
			t.Errorf("%d: %d requests elsewhere, %v", status, stolen.Load(), err)
		}
		server.Close()
	}
}

// The proxy's password is not in a message about a kubeconfig that cannot be used.
func TestProxyPasswordOfKubeconfig(t *testing.T) {
	w := newWorld(t)
	for _, proxy := range []string{"http://puser:PROXYSECRET%zz@proxy:1", "ftp://puser:PROXYSECRET@proxy"} {
		file := filepath.Join(w.home, "proxied")
		w.write(t, file, "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n"+
			"clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1', proxy-url: '"+proxy+"'}}]\nusers: [{name: a, user: {token: x}}]\n")
		for _, args := range [][]string{
			{"token", "--provider=aws", "--service-account=a/b", "--kubeconfig=" + file},
			{"doctor", "--provider=aws", "--service-account=a/b", "--kubeconfig=" + file},
			{"doctor", "bootstrap", "--server=127.0.0.1:1", "--token=abcdef", "--kubeconfig=" + file},
			{"doctor", "enrolment", "--cluster-name=a", "--hub-kubeconfig=" + file},
		} {
			r := w.wid(t, "", append(args, "--timeout=10s")...)
			if r.code == 0 || r.stdout+r.stderr == "" || strings.Contains(r.stdout+r.stderr, "PROXYSECRET") {
				t.Errorf("%v: %d\n%s%s", args, r.code, r.stdout, r.stderr)
			}
		}
	}
}
