package bootstrap

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"sigs.k8s.io/yaml"
)

// ClusterInfo is how to reach a cluster and whom to trust there: a kubeconfig with one unnamed cluster and nothing else.
type ClusterInfo struct {
	// Server is the https URL of the API server.
	Server string
	// CAData are the certificates of the authorities to trust, in PEM. Empty: those of the system.
	CAData []byte
	// TLSServerName is the name to check the server's certificate against, if it is not that of Server.
	TLSServerName string
}

// maxClusterInfo bounds what is taken for a kubeconfig, in bytes. An API object cannot be larger than that.
const maxClusterInfo = 1 << 20

// kubeconfig is the part of client.config/v1 that matters here. Everything else is refused where it could be used to steal
// credentials or to run something, and ignored where it could not.
type kubeconfig struct {
	APIVersion     string         `json:"apiVersion,omitempty"`
	Kind           string         `json:"kind,omitempty"`
	Clusters       []namedCluster `json:"clusters"`
	Contexts       []namedContext `json:"contexts"`
	CurrentContext string         `json:"current-context"`
	Users          []namedUser    `json:"users"`
}

type namedCluster struct {
	Cluster cluster `json:"cluster"`
	Name    string  `json:"name"`
}

type cluster struct {
	CAData        []byte `json:"certificate-authority-data,omitempty"`
	CAFile        string `json:"certificate-authority,omitempty"`
	Server        string `json:"server"`
	TLSServerName string `json:"tls-server-name,omitempty"`
	ProxyURL      string `json:"proxy-url,omitempty"`
	Insecure      bool   `json:"insecure-skip-tls-verify,omitempty"`
}

type namedContext struct {
	Name    string `json:"name"`
	Context struct {
		Cluster string `json:"cluster"`
	} `json:"context"`
}

type namedUser struct {
	Name string         `json:"name"`
	User map[string]any `json:"user"`
}

// ParseClusterInfo parses a kubeconfig in YAML or JSON: the unnamed cluster, else that of the current context. It refuses
// credentials of every kind, commands, local paths, proxies, the insecure flag, and servers that are not https.
func ParseClusterInfo(content []byte) (*ClusterInfo, error) {
	if len(content) > maxClusterInfo {
		return nil, fmt.Errorf("it is larger than %d bytes", maxClusterInfo)
	}
	var k kubeconfig
	if err := yaml.Unmarshal(content, &k); err != nil {
		return nil, errors.New("it is not a kubeconfig: neither YAML nor JSON of that form")
	}
	if k.Kind != "" && k.Kind != "Config" {
		return nil, fmt.Errorf("it is not a kubeconfig but a %.100q", k.Kind)
	}
	for _, u := range k.Users {
		return nil, fmt.Errorf("it holds a user, %.100q: cluster information must not hold credentials", u.Name)
	}
	c, err := k.cluster()
	if err != nil {
		return nil, err
	}
	return c.info()
}

func (k *kubeconfig) cluster() (cluster, error) {
	wanted := ""
	for _, c := range k.Contexts {
		if c.Name == k.CurrentContext && k.CurrentContext != "" {
			wanted = c.Context.Cluster
		}
	}
	for _, name := range []string{"", wanted} {
		for _, c := range k.Clusters {
			if c.Name == name {
				return c.Cluster, nil
			}
		}
	}
	if len(k.Clusters) == 0 {
		return cluster{}, errors.New("it holds no cluster")
	}
	return cluster{}, errors.New("it holds no unnamed cluster, and none of the current context")
}

func (c cluster) info() (*ClusterInfo, error) {
	switch {
	case c.Insecure:
		return nil, errors.New("it switches the verification of certificates off (insecure-skip-tls-verify)")
	case c.CAFile != "":
		return nil, fmt.Errorf("it names a local file, %.100q, instead of certificate-authority-data", c.CAFile)
	case c.ProxyURL != "":
		return nil, errors.New("it sets a proxy")
	}
	if _, err := serverURL(c.Server); err != nil {
		return nil, err
	}
	info := &ClusterInfo{Server: c.Server, CAData: c.CAData, TLSServerName: c.TLSServerName}
	_, err := info.Certificates()
	return info, err
}

// serverURL accepts https URLs without anything that has no place in the address of an API server.
func serverURL(server string) (*url.URL, error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("the server has to be https://<host>[:<port>], not %.200q", server)
	}
	return u, nil
}

// Certificates returns the certificate authorities.
func (i *ClusterInfo) Certificates() ([]*x509.Certificate, error) {
	var certificates []*x509.Certificate
	rest := i.CAData
	for len(rest) > 0 {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("a certificate authority cannot be parsed: %w", err)
		}
		certificates = append(certificates, c)
	}
	if len(i.CAData) > 0 && len(certificates) == 0 {
		return nil, errors.New("the certificate authority data holds no PEM certificate")
	}
	return certificates, nil
}

// Encode returns the kubeconfig in YAML, as kubeadm writes it.
func (i *ClusterInfo) Encode() ([]byte, error) {
	if _, err := serverURL(i.Server); err != nil {
		return nil, err
	}
	return yaml.Marshal(kubeconfig{
		APIVersion: "v1", Kind: "Config",
		Clusters: []namedCluster{{Cluster: cluster{CAData: i.CAData, Server: i.Server, TLSServerName: i.TLSServerName}}},
	})
}

// Pins returns the pins of all certificate authorities.
func (i *ClusterInfo) Pins() (PinSet, error) {
	certificates, err := i.Certificates()
	if err != nil {
		return nil, err
	}
	var set PinSet
	for _, c := range certificates {
		set = append(set, PinOf(c))
	}
	return set, nil
}

// JoinCommand returns the kubeadm command that joins the cluster, with a pin for each certificate authority.
func (i *ClusterInfo) JoinCommand(t Token) (string, error) {
	u, err := serverURL(i.Server)
	if err != nil {
		return "", err
	}
	pins, err := i.Pins()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "kubeadm join %s --token %s", hostPort(u), t.Reveal())
	for _, p := range pins {
		b.WriteString(" --discovery-token-ca-cert-hash " + p.String())
	}
	return b.String(), nil
}

func hostPort(u *url.URL) string {
	if u.Port() == "" {
		return u.Host + ":443"
	}
	return u.Host
}
