// Package kubeconfig reads and writes the kubeconfigs of a hub's agent: the
// bootstrap kubeconfig, and the one in the agent's own Secret. It refuses
// files, programs and unverified TLS, because both Secrets have other authors
// too. Errors never repeat a credential.
package kubeconfig

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/rest"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/bootstrap"
)

// Timeout bounds each request to the hub.
const Timeout = 30 * time.Second

// Names within the kubeconfigs that the agent writes. Open Cluster Management's
// agent uses the same names, and requests a new certificate if it finds others.
const (
	kubeconfigContext   = "default-context"
	kubeconfigUser      = "default-auth"
	kubeconfigNamespace = "configuration"
)

// Hub describes the hub as the bootstrap kubeconfig does.
type Hub struct {
	Name    string // of the cluster within the bootstrap kubeconfig
	Cluster clientcmdv1.Cluster
	User    *clientcmdv1.AuthInfo // the bootstrap credential, or nil
}

// ParseBootstrap parses the bootstrap kubeconfig. It refuses every field that
// reads a local file, runs a program or weakens TLS, because the agent may have
// more rights than the author of the Secret. Errors never repeat a credential.
func ParseBootstrap(content []byte) (*Hub, error) {
	k, err := Parse(content)
	if err != nil {
		return nil, err
	}
	return HubOf(k)
}

// HubOf is [ParseBootstrap] for a kubeconfig that Parse has returned.
func HubOf(k *clientcmdv1.Config) (*Hub, error) {
	c := k.Clusters[0].Cluster
	switch {
	case c.InsecureSkipTLSVerify:
		return nil, errors.New("it sets insecure-skip-tls-verify: set certificate-authority-data instead")
	case c.CertificateAuthority != "":
		return nil, fmt.Errorf("it names a file, certificate-authority %.100q: set certificate-authority-data instead",
			c.CertificateAuthority)
	case c.ProxyURL != "":
		return nil, errors.New("it sets proxy-url: set HTTPS_PROXY in the agent's environment instead")
	}
	// Encode checks the address and the certificates.
	info := bootstrap.ClusterInfo{Server: c.Server, CAData: c.CertificateAuthorityData, TLSServerName: c.TLSServerName}
	if _, err := info.Encode(); err != nil {
		return nil, err
	}
	hub := &Hub{Name: cmp.Or(k.Clusters[0].Name, "hub"),
		Cluster: clientcmdv1.Cluster{Server: c.Server, CertificateAuthorityData: c.CertificateAuthorityData,
			TLSServerName: c.TLSServerName}}
	if len(k.AuthInfos) > 0 {
		user, err := Inline(k.AuthInfos[0].AuthInfo, nil)
		if err != nil {
			return nil, err
		}
		hub.User = &user
	}
	return hub, nil
}

// Parse accepts one cluster, at most one user, and a current context that names
// these two or none.
func Parse(content []byte) (*clientcmdv1.Config, error) {
	var k clientcmdv1.Config
	// The parser's error may quote a credential.
	if yaml.UnmarshalStrict(content, &k) != nil || k.Kind != "Config" || k.APIVersion != "v1" {
		return nil,
			errors.New(
				"it is not a kubeconfig: it has to be YAML or JSON of apiVersion v1 and kind Config, with known fields alone, each once")
	}
	if len(k.Clusters) != 1 || len(k.AuthInfos) > 1 {
		return nil,
			fmt.Errorf(
				"it holds %d clusters and %d users: it has to hold the hub and one user, as written by kubectl config view --minify --flatten --raw",
				len(k.Clusters), len(k.AuthInfos))
	}
	for _, c := range k.Contexts {
		if c.Name == k.CurrentContext && c.Context.Cluster == k.Clusters[0].Name &&
			(len(k.AuthInfos) == 0 || c.Context.AuthInfo == k.AuthInfos[0].Name) {
			return &k, nil
		}
	}
	if k.CurrentContext != "" {
		return nil, fmt.Errorf("its current context %.100q does not name its cluster and its user", k.CurrentContext)
	}
	return &k, nil
}

// User returns the user entry of a kubeconfig that Parse accepts. [Inline]
// reads the credential.
func User(content []byte) (clientcmdv1.AuthInfo, error) {
	k, err := Parse(content)
	if err != nil {
		return clientcmdv1.AuthInfo{}, err
	}
	if len(k.AuthInfos) == 0 {
		return clientcmdv1.AuthInfo{}, errors.New("it holds no user")
	}
	return k.AuthInfos[0].AuthInfo, nil
}

// Inline returns a user that holds its credential itself: a token, or a
// certificate with its key. It reads the files that the user names from files.
func Inline(user clientcmdv1.AuthInfo, files map[string][]byte) (clientcmdv1.AuthInfo, error) {
	var none clientcmdv1.AuthInfo
	switch {
	case user.Exec != nil:
		return none, fmt.Errorf("its user runs a program, exec %.100q: use a token or a client certificate",
			user.Exec.Command)
	case user.AuthProvider != nil:
		return none, fmt.Errorf("its user has an auth-provider, %.100q: use a token or a client certificate",
			user.AuthProvider.Name)
	case user.Username != "" || user.Password != "":
		return none, errors.New("its user has a password: use a token or a client certificate")
	case user.Impersonate != "" || user.ImpersonateUID != "" ||
		len(user.ImpersonateGroups)+len(user.ImpersonateUserExtra) > 0:
		return none, errors.New("its user impersonates another one: use that one's own credential")
	}
	token := []byte(user.Token)
	for _, f := range []struct {
		field, file string
		value       *[]byte
	}{
		{"tokenFile", user.TokenFile, &token},
		{"client-certificate", user.ClientCertificate, &user.ClientCertificateData},
		{"client-key", user.ClientKey, &user.ClientKeyData},
	} {
		content, ok := files[f.file]
		switch {
		case f.file != "" && !ok:
			return none, fmt.Errorf("its user names a file, %s %.100q: write the content into the kubeconfig itself", f.field,
				f.file)
		case ok:
			*f.value = content
		}
	}
	hasCert, hasKey := len(user.ClientCertificateData) > 0, len(user.ClientKeyData) > 0
	if hasCert != hasKey || (len(token) == 0) != hasCert {
		return none, errors.New("its user has to have either a token, or a client certificate with its key")
	}
	return clientcmdv1.AuthInfo{Token: string(token), ClientCertificateData: user.ClientCertificateData,
		ClientKeyData: user.ClientKeyData}, nil
}

// Compose returns the kubeconfig of the agent: the hub's address and CA with
// the driver's user entry. It equals the kubeconfig of Open Cluster
// Management's agent byte by byte, unless the bootstrap kubeconfig sets
// tls-server-name, which that agent drops.
func (h *Hub) Compose(user clientcmdv1.AuthInfo) ([]byte, error) {
	return yaml.Marshal(clientcmdv1.Config{APIVersion: "v1", Kind: "Config",
		Clusters:  []clientcmdv1.NamedCluster{{Name: h.Name, Cluster: h.Cluster}},
		AuthInfos: []clientcmdv1.NamedAuthInfo{{Name: kubeconfigUser, AuthInfo: user}},
		Contexts: []clientcmdv1.NamedContext{{Name: kubeconfigContext,
			Context: clientcmdv1.Context{Cluster: h.Name, AuthInfo: kubeconfigUser, Namespace: kubeconfigNamespace}}},
		CurrentContext: kubeconfigContext})
}

// SetAddress sets the address of the hub and the check of its certificate.
// Nothing else may set them.
func (h *Hub) SetAddress(config *rest.Config) {
	config.Host, config.Timeout = h.Cluster.Server, Timeout
	config.Insecure, config.CAFile = false, ""
	config.CAData, config.ServerName = h.Cluster.CertificateAuthorityData, h.Cluster.TLSServerName
}

// Config returns the configuration of a user that Inline has returned.
func (h *Hub) Config(user clientcmdv1.AuthInfo) *rest.Config {
	config := &rest.Config{BearerToken: user.Token}
	config.CertData, config.KeyData = user.ClientCertificateData, user.ClientKeyData
	h.SetAddress(config)
	return config
}
