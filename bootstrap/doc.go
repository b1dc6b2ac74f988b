// Package bootstrap establishes the first trust between a machine and a Kubernetes cluster, with bootstrap tokens and a signed
// cluster-info. It is compatible with kubeadm and kube-controller-manager byte by byte, in both directions.
// The names and keys of its Secrets and its ConfigMap are constants of k8s.io/cluster-bootstrap/token/api.
//
// The administrator creates a token and stores it as a Secret in kube-system:
//
//	token, err := bootstrap.GenerateToken()
//	config := bootstrap.TokenConfig{Token: token, Expires: time.Now().Add(24 * time.Hour),
//		Usages: []string{bootstrap.UsageSigning, bootstrap.UsageAuthentication}}
//	secret, err := config.Secret()
//
// A signer, such as kube-controller-manager's, signs the ConfigMap kube-public/cluster-info with it. The joining machine knows an
// address, the token, and a pin of the cluster's CA:
//
//	pins, err := bootstrap.ParsePins("sha256:…")
//	info, err := bootstrap.Discover(ctx, []string{"10.0.0.1:6443"}, token, bootstrap.WithPins(pins))
//
// Afterwards it trusts info.CAData at info.Server, and nothing else. A Watch keeps this information current.
package bootstrap
