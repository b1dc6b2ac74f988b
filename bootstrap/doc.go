// Package bootstrap establishes the first trust between a machine and a Kubernetes cluster: bootstrap tokens, the signed
// cluster-info that they are for, and its discovery. It is compatible with Kubernetes byte by byte: what kubeadm and
// kube-controller-manager write, this package reads, and the other way round.
//
// The cluster's side creates a token and stores it as a Secret in kube-system:
//
//	token, err := bootstrap.GenerateToken()
//	config := bootstrap.TokenConfig{Token: token, Expires: time.Now().Add(24 * time.Hour),
//		Usages: []string{bootstrap.UsageSigning, bootstrap.UsageAuthentication}}
//	secret, err := config.Secret()
//
// A signer (that of kube-controller-manager) signs the ConfigMap kube-public/cluster-info with it. The machine that
// joins knows an address, the token, and best of all a pin of the cluster's certificate authority:
//
//	pins, err := bootstrap.ParsePins("sha256:…")
//	info, err := bootstrap.Discover(ctx, []string{"10.0.0.1:6443"}, token, bootstrap.WithPins(pins))
//
// From then on it trusts info.CAData at info.Server, and nothing else.
package bootstrap
