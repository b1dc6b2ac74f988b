// Package interop_test has minio-go as the application of a pod.
package interop_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/workloadid/workloadid/internal/podidentity"
	"github.com/workloadid/workloadid/podidentity/proxy"
)

const secret = "c2VjcmV0"

// startServer plays the server of the proxy: it refuses until the pod is bound.
func startServer(t *testing.T, bound *atomic.Bool) proxy.Options {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if !bound.Load() {
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprint(w, `{"Code":"NotBound","Message":"no IAMBinding"}`)
			return
		}
		_, _ = fmt.Fprintf(w, `{"AccessKeyId":"ASIA","SecretAccessKey":"hidden","Token":"session","Expiration":%q}`,
			time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	}))
	t.Cleanup(server.Close)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("pod-token"), 0o600); err != nil {
		t.Fatal(err)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return proxy.Options{Server: server.URL, CA: ca, TokenFile: token, Secret: secret}
}

// startProxy returns the address for the applications.
func startProxy(t *testing.T, o proxy.Options) string {
	t.Helper()
	p, err := proxy.New(o)
	if err != nil {
		t.Fatal(err)
	}
	listeners, err := proxy.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	go func() { done <- proxy.Serve(ctx, p, listeners) }()
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
	return listeners[0].Addr().String()
}

func TestIAMCredentialsOfMinioGo(t *testing.T) {
	for _, name := range []string{"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
		"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"} {
		t.Setenv(name, "")
	}
	var bound atomic.Bool
	address := startProxy(t, startServer(t, &bound))
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://"+address+podidentity.Path)
	t.Setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", secret)
	iam := credentials.NewIAM("")
	await(t, func() error {
		_, err := iam.GetWithContext(&credentials.CredContext{Client: http.DefaultClient})
		if err == nil || !strings.Contains(err.Error(), "403") {
			return fmt.Errorf("without a binding: %w", err)
		}
		return nil
	})
	bound.Store(true)
	await(t, func() error {
		got, err := iam.GetWithContext(&credentials.CredContext{Client: http.DefaultClient})
		if err == nil && (got.AccessKeyID != "ASIA" || got.SecretAccessKey != "hidden" || got.SessionToken != "session" ||
			got.Expiration.Before(time.Now().Add(50*time.Minute))) {
			t.Errorf("%+v", got)
		}
		return err
	})
	if iam.IsExpired() {
		t.Error("minio-go takes the credentials for expired")
	}
}

// await polls a real proxy.
func await(t *testing.T, holds func() error) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for err := holds(); err != nil; err = holds() {
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
