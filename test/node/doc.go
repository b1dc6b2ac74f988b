//go:build linux

// Command node starts a real Kubernetes node, installs the programs of this
// project there as the documents say, and checks that they work. It ends
// everything that it started and leaves nothing behind.
//
//	go -C test/node run . [-run regexp] [-keep] [-possible]
//
// The node has a control plane, kubelet, containerd, runc and kube-proxy in
// network, mount and PID namespaces of its own, without any way out. AWS is
// simulated in the same network, under its production host names. It needs root
// and some Debian packages; -possible only reports whether they are there.
//
// Three processes share this program. The first one builds the images, creates
// the namespaces and removes the cgroups and the temporary folder at the end.
// The second one is process 1 of the node and collects orphans. The third one
// is the node's manager: it starts the programs and runs the checks. When
// process 1 ends, the kernel ends all others.
package main
