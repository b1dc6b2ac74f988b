//go:build linux

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// Addresses of the node. Nothing outside its network namespace reaches them,
// and the gateway does not exist: the default route only lets the addresses of
// Services reach the rules of kube-proxy.
const (
	nodeName    = "node"
	nodeIP      = "10.200.0.2"
	cloudIP     = "10.200.0.3"
	gatewayIP   = "10.200.0.1"
	podCIDR     = "10.244.0.0/16"
	serviceCIDR = "10.96.0.0/16"
	domain      = "cluster.local"
)

const (
	cgroupRoot     = "/sys/fs/cgroup"
	cgroupVariable = "WORKLOADID_NODE_CGROUP"
	cniPlugins     = "/usr/lib/cni"
	busybox        = "/usr/bin/busybox"
	socket         = "/run/containerd/containerd.sock"
)

// isolate makes the mounts and the network of the node. Everything that its
// programs write outside of dir they write to a mount that ends with the
// namespace.
func isolate(ctx context.Context, dir string) error {
	if err := syscall.Sethostname([]byte(nodeName)); err != nil {
		return err
	}
	return errors.Join(mountAll(ctx, dir), network(ctx))
}

// kernelSettings are those that the kubelet sets for the whole machine. It
// finds these values already set, in a file.
func kernelSettings() map[string]string {
	return map[string]string{
		"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
		"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
	}
}

func mountAll(ctx context.Context, dir string) error {
	files := map[string]string{
		"/etc/hosts":       "127.0.0.1 localhost\n" + nodeIP + " " + nodeName + "\n",
		"/etc/resolv.conf": "nameserver " + nodeIP + "\n",
	}
	for name, value := range kernelSettings() {
		files["/proc/sys/"+name] = value + "\n"
	}
	lines := []string{"mount --make-rprivate /", "mount -t proc proc /proc", "mount -t tmpfs tmpfs /run"}
	for _, over := range []string{"/var/lib", "/var/log"} {
		own := filepath.Join(dir, "over", over)
		if err := os.MkdirAll(own, 0o700); err != nil {
			return err
		}
		lines = append(lines, "mount --bind '"+own+"' "+over)
	}
	for over, content := range files {
		own := filepath.Join(dir, "over", over)
		if err := writeFile(own, content); err != nil {
			return err
		}
		lines = append(lines, "mount --bind '"+own+"' $(readlink -f "+over+")")
	}
	return shell(ctx, lines...)
}

func network(ctx context.Context) error {
	return shell(ctx,
		"ip link set lo up",
		"ip link add node0 type veth peer name node1",
		"ip addr add "+nodeIP+"/24 dev node0",
		"ip addr add "+cloudIP+"/24 dev node0",
		"ip link set node0 up",
		"ip link set node1 up",
		"ip route add default via "+gatewayIP+" dev node0",
		"echo 1 >/proc/sys/net/ipv4/ip_forward",
	)
}

// writeFile creates the folders above the file too.
func writeFile(file, content string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(content), 0o644) //nolint:gosec // read by pods and other users
}
