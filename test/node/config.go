//go:build linux

package main

import (
	"errors"
	"os"
	"strings"
)

// pauseImage keeps the namespaces of a pod. busyboxImage has a shell.
const (
	pauseImage   = "node.test/pause:v1"
	busyboxImage = "node.test/busybox:v1"
)

// configure writes the configuration of the programs.
func (n *node) configure() error {
	fill := strings.NewReplacer("$DIR", n.dir, "$CGROUP", "/"+os.Getenv(cgroupVariable), "$NODE_IP", nodeIP,
		"$POD_CIDR", podCIDR,
		"$SERVICE_CIDR", serviceCIDR, "$DOMAIN", domain, "$SOCKET", socket, "$PAUSE", pauseImage, "$CNI", cniPlugins, "$NODE",
		nodeName)
	var err error
	for name, content := range configuration() {
		err = errors.Join(err, writeFile(n.path(name), fill.Replace(content)))
	}
	return err
}

func configuration() map[string]string {
	return map[string]string{
		"kubeadm.yaml": `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: $NODE_IP, bindPort: 6443}
nodeRegistration: {name: $NODE, criSocket: "unix://$SOCKET"}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.0
certificatesDir: $DIR/pki
controlPlaneEndpoint: $NODE_IP:6443
networking: {serviceSubnet: $SERVICE_CIDR, podSubnet: $POD_CIDR, dnsDomain: $DOMAIN}
`,
		// Without CAP_SYS_RESOURCE no process may lower its score for the OOM
		// killer.
		"containerd.toml": `version = 2
root = "$DIR/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.tracing.processor.v1.otlp"]
[grpc]
  address = "$SOCKET"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$PAUSE"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
      BinaryName = "runc"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$CNI"
    conf_dir = "$DIR/cni"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "$DIR/registries"
`,
		// ptp routes all packets, also those between pods, so that kube-proxy's
		// rules see the answers of Services.
		"cni/10-pods.conflist": `{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "ptp", "ipam": {"type": "host-local", "ranges": [[{"subnet": "$POD_CIDR"}]],
    "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "$DIR/ipam"}},
  {"type": "portmap", "capabilities": {"portMappings": true}}
]}
`,
		"kubelet.yaml": `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: "$DIR/pki/ca.crt"}}
authorization: {mode: Webhook}
cgroupDriver: cgroupfs
cgroupRoot: $CGROUP
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
containerRuntimeEndpoint: unix://$SOCKET
clusterDNS: [$NODE_IP]
clusterDomain: $DOMAIN
resolvConf: $DIR/pod-resolv.conf
podLogsDir: $DIR/logs/pods
volumePluginDir: $DIR/kubelet-plugins
serializeImagePulls: false
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 50Mi, nodefs.available: "0%", imagefs.available: "0%"}
`,
		"pod-resolv.conf": "nameserver $NODE_IP\n",
		"kube-proxy.yaml": `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
hostnameOverride: $NODE
clusterCIDR: $POD_CIDR
clientConnection: {kubeconfig: "$DIR/kube/super-admin.conf"}
oomScoreAdj: 0
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`,
		"credentials.yaml": `apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- {name: wid, apiVersion: credentialprovider.kubelet.k8s.io/v1, args: [kubelet-credential-provider, --no-cache], matchImages: ["*.dkr.ecr.*.amazonaws.com"], defaultCacheDuration: 10m, tokenAttributes: {serviceAccountTokenAudience: sts.amazonaws.com, cacheType: ServiceAccount, requireServiceAccount: true, requiredServiceAccountAnnotationKeys: [eks.amazonaws.com/role-arn]}, env: [{name: SSL_CERT_FILE, value: "$DIR/ca.pem"}]}
`,
		// A registry with a certificate of a private CA.
		"registries/" + registryHost + "/hosts.toml": "server = \"https://" + registryHost + "\"\n[host.\"https://" +
			registryHost + "\"]\n  ca = \"$DIR/ca.pem\"\n",
	}
}
