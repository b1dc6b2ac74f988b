// Package bootstrap establishes the first trust between a machine and a
// Kubernetes cluster, with bootstrap tokens and a signed cluster-info. It
// serves programs that join machines or clusters. It is compatible with kubeadm
// and kube-controller-manager byte by byte, in both directions. The names and
// keys of its Secrets and its ConfigMap are constants of
// k8s.io/cluster-bootstrap/token/api.
//
// The example of the package shows the three steps. An administrator creates a
// token ([GenerateToken]) and stores it as a Secret ([TokenConfig.Secret]). A
// signer, such as kube-controller-manager's, signs the ConfigMap
// kube-public/cluster-info with it ([Sign]). The joining machine knows an
// address, the token, and a pin of the cluster's CA, and calls [Discover].
// Afterwards it trusts the CAs of the [ClusterInfo] at its server, and nothing
// else. A [Watch] keeps this information current.
//
// Below this package, tokens manages the Secrets, controllers signs and cleans
// up, and authenticator authenticates tokens in servers of your own.
package bootstrap
