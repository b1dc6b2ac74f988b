//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/net/http2"
)

// node is a node that runs.
type node struct {
	dir       string
	processes map[string]*process
	order     []string
}

// Folders in the temporary one.
func (n *node) path(name ...string) string { return filepath.Join(append([]string{n.dir}, name...)...) }
func (n *node) admin() string              { return n.path("kube", "super-admin.conf") }

// program returns the path of a program that test/kube has built.
func program(name string) string {
	for _, variable := range []string{"KUBEBUILDER_ASSETS", "NODE_ASSETS"} {
		if file := filepath.Join(os.Getenv(variable), name); exists(file) {
			return file
		}
	}
	return name
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// startNode starts the programs of the node. It does not wait for the node.
func startNode(ctx context.Context, dir string) (*node, error) {
	n := &node{dir: dir, processes: map[string]*process{}}
	if err := os.MkdirAll(n.path("kube"), 0o700); err != nil {
		return nil, err
	}
	if err := n.configure(); err != nil {
		return nil, err
	}
	for _, phase := range []string{"certs all", "kubeconfig all --kubeconfig-dir=" + n.path("kube")} {
		args := append([]string{program("kubeadm"), "init", "phase"}, strings.Fields(phase)...)
		if _, err := command(ctx, append(args, "--config="+n.path("kubeadm.yaml"))...); err != nil {
			return nil, err
		}
	}
	if err := makeCgroups(); err != nil {
		return nil, err
	}
	for _, p := range n.programs() {
		if err := n.start(p); err != nil {
			return nil, err
		}
		if filepath.Base(p[0]) == "containerd" { // without which the kubelet ends
			if err := n.containerdAnswers(ctx); err != nil {
				return nil, err
			}
		}
	}
	return n, nil
}

func (n *node) start(args []string) error {
	name := filepath.Base(args[0])
	p := &process{name: name, log: n.path("logs", name+".log"), args: args}
	n.processes[name], n.order = p, append(n.order, name)
	return p.start()
}

// ended returns an error if a program of the node has ended by itself.
func (n *node) ended() error {
	var err error
	for _, name := range n.order {
		err = errors.Join(err, n.processes[name].ended())
	}
	return err
}

// makeCgroups makes the cgroup below which the kubelet makes those of the pods.
func makeCgroups() error {
	name := os.Getenv(cgroupVariable)
	if exists(filepath.Join(cgroupRoot, "cgroup.controllers")) {
		return os.MkdirAll(filepath.Join(cgroupRoot, name), 0o755) //nolint:gosec // as all cgroups
	}
	controllers, err := filepath.Glob(filepath.Join(cgroupRoot, "*"))
	for _, c := range controllers {
		if info, statErr := os.Lstat(c); statErr != nil || !info.IsDir() || filepath.Base(c) == "unified" {
			continue // a link to a controller, or the version 2 of a hybrid machine
		}
		err = errors.Join(err, os.MkdirAll(filepath.Join(c, name), 0o755)) //nolint:gosec // as all cgroups
		if filepath.Base(c) == "cpuset" {
			for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
				value, readErr := os.ReadFile(filepath.Join(c, file)) //nolint:gosec // of the kernel
				err = errors.Join(err, readErr, os.WriteFile(filepath.Join(c, name, file), value, 0o600))
			}
		}
	}
	return err
}

// programs returns the command lines, in the order in which they start.
func (n *node) programs() [][]string {
	pki := func(name string) string { return n.path("pki", name) }
	conf := func(name string) string { return n.path("kube", name+".conf") }
	return [][]string{
		{program("etcd"), "--data-dir=" + n.path("etcd"), "--unsafe-no-fsync"},
		{program("kube-apiserver"), "--advertise-address=" + nodeIP, "--secure-port=6443",
			"--etcd-servers=http://127.0.0.1:2379",
			"--service-cluster-ip-range=" + serviceCIDR, "--allow-privileged", "--authorization-mode=Node,RBAC",
			"--enable-bootstrap-token-auth",
			"--enable-admission-plugins=NodeRestriction", "--client-ca-file=" + pki("ca.crt"),
			"--tls-cert-file=" + pki("apiserver.crt"), "--tls-private-key-file=" + pki("apiserver.key"),
			"--kubelet-client-certificate=" + pki("apiserver-kubelet-client.crt"),
			"--kubelet-client-key=" + pki("apiserver-kubelet-client.key"),
			"--service-account-issuer=" + issuer, "--service-account-jwks-uri=" + issuer + "/openid/v1/jwks",
			"--service-account-key-file=" + pki("sa.pub"), "--service-account-signing-key-file=" + pki("sa.key")},
		{program("kube-controller-manager"), "--kubeconfig=" + conf("controller-manager"), "--leader-elect=false",
			"--controllers=*,bootstrapsigner,tokencleaner",
			"--cluster-signing-cert-file=" + pki("ca.crt"), "--cluster-signing-key-file=" + pki("ca.key"),
			"--root-ca-file=" + pki("ca.crt"),
			"--service-account-private-key-file=" + pki("sa.key"), "--use-service-account-credentials"},
		{program("kube-scheduler"), "--kubeconfig=" + conf("scheduler"), "--leader-elect=false"},
		{"/usr/bin/containerd", "--config=" + n.path("containerd.toml")},
		{program("kubelet"), "--config=" + n.path("kubelet.yaml"), "--kubeconfig=" + conf("kubelet"), "--node-ip=" + nodeIP,
			"--hostname-override=" + nodeName,
			"--root-dir=" + n.path("kubelet"), "--image-credential-provider-config=" + n.path("credentials.yaml"),
			"--image-credential-provider-bin-dir=" + n.path("bin")},
		{program("kube-proxy"), "--config=" + n.path("kube-proxy.yaml")},
	}
}

// containerdAnswers waits for the runtime service. containerd listens before
// that service is ready, and the kubelet ends if it finds it so. systemd would
// start the kubelet again.
func (n *node) containerdAnswers(ctx context.Context) error {
	transport := &http2.Transport{AllowHTTP: true,
		DialTLSContext: func(ctx context.Context, _, _ string, _ *tls.Config) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}}
	defer transport.CloseIdleConnections()
	return n.until(ctx, 20*time.Second, "containerd answers", func(ctx context.Context) error {
		const version = "http://containerd/runtime.v1.RuntimeService/Version"
		// an empty message
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, version, bytes.NewReader(make([]byte, 5)))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/grpc")
		response, err := transport.RoundTrip(request)
		if err != nil {
			return err
		}
		defer response.Body.Close() //nolint:errcheck // read only
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			return err
		}
		if response.Trailer.Get("Grpc-Status") != "0" { // an error without a message comes with the headers
			return fmt.Errorf("headers %v, trailers %v", response.Header, response.Trailer)
		}
		return nil
	})
}

func (n *node) ctr(ctx context.Context, args ...string) error {
	_, err := command(ctx, append([]string{"ctr", "--address=" + socket, "--namespace=k8s.io"}, args...)...)
	return err
}

// importImages gives containerd the images under the names that the manifests
// use.
func (n *node) importImages(ctx context.Context) error {
	archives, err := filepath.Glob(n.path("images", "*.tar"))
	if given := os.Getenv(sdkVariable); given != "" {
		archives = append(archives, given)
	}
	for _, archive := range archives {
		err = errors.Join(err, n.ctr(ctx, "images", "import", archive))
	}
	return err
}

// issuer is the issuer of the cluster's tokens: the API server itself.
const issuer = "https://" + nodeIP + ":6443"

// until polls until the condition holds, and says what is missing when the
// timeout expires or a program of the node has ended.
func (n *node) until(ctx context.Context, limit time.Duration, what string,
	condition func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	var missing error // before the time was over
	for {
		err := condition(ctx)
		if err == nil {
			return nil
		}
		if missing == nil || ctx.Err() == nil {
			missing = err
		}
		if ended := n.ended(); ended != nil {
			return ended
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %s: %w", what, limit, missing)
		case <-ticker.C:
		}
	}
}
