//go:build linux

package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

// insideVariable marks the process that runs in namespaces of its own.
const insideVariable = "WORKLOADID_TEST_NAMESPACE"

// inNamespace runs a test again in new namespaces, the first of the choices
// that the kernel permits. It reports whether the calling process is inside.
func inNamespace(t *testing.T, choices ...uintptr) bool {
	t.Helper()
	if os.Getenv(insideVariable) != "" {
		return true
	}
	err, out := error(syscall.EPERM), []byte(nil)
	for _, flags := range choices {
		if errors.Is(err, syscall.EPERM) {
			out, err = again(t, flags).CombinedOutput()
		}
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("in new namespaces, which need root or user namespaces: %v\n%s", err, out)
	}
	return false
}

func again(t *testing.T, flags uintptr) *exec.Cmd {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$",
		"-test.v") //nolint:gosec // this test itself
	c.Env = append(os.Environ(), insideVariable+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	if flags&syscall.CLONE_NEWUSER != 0 {
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	return c
}

// loopbackUp does what the container runtime does for a pod.
func loopbackUp(t *testing.T) {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(socket) //nolint:errcheck // of a test
	request := struct {
		name  [16]byte
		flags uint16
		_     [22]byte
	}{name: [16]byte{'l', 'o'}, flags: syscall.IFF_UP}
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(socket), syscall.SIOCSIFFLAGS,
		uintptr(unsafe.Pointer(&request))); errno != 0 {
		t.Fatal(errno)
	}
}

// An SDK that knows only AWS_CONTAINER_CREDENTIALS_RELATIVE_URI gets
// credentials from the address that the init container added.
func TestRedirect(t *testing.T) {
	if !inNamespace(t, syscall.CLONE_NEWNET, syscall.CLONE_NEWNET|syscall.CLONE_NEWUSER) {
		return
	}
	loopbackUp(t)
	p := newPod(t)
	p.up.Store(true)
	for range 2 { // an init container may be restarted
		if err := run(t.Context(), []string{"redirect"}, p.getenv, io.Discard, io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	startSidecar(t, p)
	for name, test := range map[string]struct{ path, token string }{
		"secret in the path":      {credentialsPath + "/" + secret, ""},
		"secret as Authorization": {credentialsPath, secret},
	} {
		t.Run(name, func(t *testing.T) { relativeURI(t, test.path, test.token) })
	}
	t.Run("metadata address untouched", func(t *testing.T) {
		if conn, err := net.Dial("tcp", "169.254.169.254:80"); err == nil || //nolint:noctx // of a test
			!errors.Is(err, syscall.ENETUNREACH) {
			t.Errorf("got connection %v and error %v, want %v", conn, err, syscall.ENETUNREACH)
		}
	})
	t.Run("another address gets nothing", refusesAnotherAddress)
}

func startSidecar(t *testing.T, p *pod) {
	t.Helper()
	const listen = "--listen=" + linkLocal + ":80"
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- run(ctx, []string{"proxy", "--server=" + p.server, "--token-file=" + p.token, listen}, p.getenv, io.Discard,
			io.Discard)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	kubetest.Eventually(t, "the probe succeeds", func() bool {
		return run(t.Context(), []string{"proxy", "--check", listen}, p.getenv, io.Discard, io.Discard) == nil
	})
}

// relativeURI fetches with the default chain of the Go SDK.
func relativeURI(t *testing.T, path, token string) {
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "HTTP_PROXY", "http_proxy"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", path)
	t.Setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", token)
	loaded, err := config.LoadDefaultConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := loaded.Credentials.Retrieve(t.Context()); err != nil || got.AccessKeyID != "ASIA" ||
		got.SecretAccessKey != "hidden" {
		t.Errorf("got %+v and error %v, want the credentials of the sidecar", got, err)
	}
}

// refusesAnotherAddress asks from an address other than the proxy's, as a
// neighbour on the node's network would.
func refusesAnotherAddress(t *testing.T) {
	const neighbour = "10.9.9.9"
	if err := addLoopbackAddress(neighbour); err != nil {
		t.Fatal(err)
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(neighbour)}}
	client := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
	err := fetch(t.Context(), client, "http://"+linkLocal+credentialsPath)
	if err == nil || !strings.HasPrefix(err.Error(), "403 ") || strings.Contains(err.Error(), "hidden") {
		t.Errorf("got error %v, want a 403 without credentials", err)
	}
}

// A user namespace of its own has no capability over the network namespace that
// the process stays in.
func TestRedirectWithoutTheCapability(t *testing.T) {
	if !inNamespace(t, syscall.CLONE_NEWUSER) {
		return
	}
	err := run(t.Context(), []string{"redirect"}, os.Getenv, io.Discard, io.Discard)
	if !errors.Is(err, syscall.EPERM) || !strings.Contains(err.Error(), "NET_ADMIN") {
		t.Errorf("got error %v, want %v and the capability NET_ADMIN", err, syscall.EPERM)
	}
}
