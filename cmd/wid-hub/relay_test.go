package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestRelayFlags(t *testing.T) {
	files := []string{"--tls-cert-file=c", "--tls-private-key-file=k"}
	o,
		err := parseRelayFlags(append(files, "--bind-address=:1", "--max-connections=3", "--max-connections-per-address=2",
		"--max-requests=4",
		"--metrics-bind-address=0", "--health-probe-bind-address=:2"), io.Discard)
	if want := (relayOptions{":1", "c", "k", 3, 2, 4, "0", ":2"}); err != nil || o != want {
		t.Errorf("flags give %+v, %v, want %+v", o, err, want)
	}
	for name, row := range map[string]struct {
		args []string
		want string
	}{
		"no certificate":         {nil, "--tls-cert-file and --tls-private-key-file are required"},
		"no connections":         {append(files, "--max-connections=0"), "must be at least 1"},
		"no requests":            {append(files, "--max-requests=0"), "must be at least 1"},
		"argument":               {append(files, "x"), `unexpected argument "x": see wid-hub relay --help`},
		"flag of the controller": {append(files, "--leader-elect"), "unknown flag: --leader-elect"},
		"missing kubeconfig":     {files, "set KUBECONFIG"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", "/nonexistent")
			if err := run(t.Context(), append([]string{"relay"}, row.args...), io.Discard, io.Discard); err == nil ||
				!strings.Contains(err.Error(), row.want) {
				t.Errorf("error %v, want %q", err, row.want)
			}
		})
	}
	for name, row := range map[string]struct {
		args []string
		want string
	}{
		"version":            {[]string{"relay", "--version"}, "wid-hub relay version "},
		"help":               {[]string{"relay", "--help"}, "--tls-cert-file"},
		"help of the hub":    {[]string{"--help"}, "wid-hub relay --help"},
		"version of the hub": {[]string{"--version"}, "wid-hub version "},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := run(t.Context(), row.args, &out, io.Discard); !errors.Is(err, pflag.ErrHelp) ||
				!strings.Contains(out.String(), row.want) {
				t.Errorf("error %v, want help that says %q: %s", err, row.want, out.String())
			}
		})
	}
}

// The relay follows the hub's CA for client certificates, and keeps the last
// one while it cannot read it.
func TestRelayFollowsTheClientCA(t *testing.T) {
	published := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system",
		Name: "extension-apiserver-authentication"}}
	c := fake.NewClientBuilder().WithObjects(published).Build()
	var log strings.Builder
	s := &relayServer{hub: &rest.Config{Host: "https://hub.example"}, reader: c,
		log: funcr.New(func(_, args string) { log.WriteString(args) }, funcr.Options{})}
	load := func() *http.Handler {
		t.Helper()
		if err := s.load(t.Context()); err != nil {
			t.Fatal(err)
		}
		return s.handler.Load()
	}
	if none := load(); none == nil || load() != none || !strings.Contains(log.String(), "serves bearer tokens only") {
		t.Errorf("without a CA: %s", log.String())
	}
	none := load()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	published.Data = map[string]string{
		"client-ca-file": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))}
	if err := c.Update(t.Context(), published); err != nil {
		t.Fatal(err)
	}
	one := load()
	if one == none || load() != one {
		t.Error("another CA makes another handler, and the same CA none")
	}
	s.reader = failing{c}
	if err := s.load(t.Context()); err == nil ||
		!strings.Contains(err.Error(), `needs the Role "extension-apiserver-authentication-reader"`) ||
		s.handler.Load() != one {
		t.Error(err)
	}
	s.log = logr.Discard()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.follow(ctx); err != nil {
		t.Error(err)
	}
}

type failing struct{ client.Reader }

func (failing) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("forbidden")
}
