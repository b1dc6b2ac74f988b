package bootstrap

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// ClusterInfo is how to reach a cluster and whom to trust there: a kubeconfig with one unnamed cluster and nothing else.
type ClusterInfo struct {
	// Server is the https URL of the API server: https://<host>[:<port>][/<path>], where the host is a DNS name or an IP
	// address and the port 443 by default.
	Server string
	// CAData are the certificates of the authorities to trust, in PEM, and nothing that is secret. Empty: those of the
	// system.
	CAData []byte
	// TLSServerName is the name to check the server's certificate against. Empty: the host of Server.
	TLSServerName string
}

// maxClusterInfo bounds what is taken for a kubeconfig, in bytes. An API object cannot be larger than that.
const maxClusterInfo = 1 << 20

const (
	configVersion = "v1"
	configKind    = "Config"
)

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
// credentials of every kind, private keys next to the certificates included, commands, local paths, proxies, the insecure
// flag, servers that are not https, YAML anchors with aliases, and content of more than 1 MiB. Like kubectl it refuses two
// clusters or contexts of one name, and another kind or apiVersion than Config and v1; both may be left out.
func ParseClusterInfo(content []byte) (*ClusterInfo, error) {
	if len(content) > maxClusterInfo {
		return nil, fmt.Errorf("it is larger than %d bytes", maxClusterInfo)
	}
	if mayExpand(content) {
		return nil, errors.New("it uses YAML anchors and aliases (& and *): write the values out where they are needed")
	}
	var k kubeconfig
	if err := yaml.Unmarshal(content, &k); err != nil {
		return nil, errors.New("it is not a kubeconfig: neither YAML nor JSON of that form")
	}
	if k.Kind != "" && k.Kind != configKind {
		return nil, fmt.Errorf("it is not a kubeconfig but a %.100q", k.Kind)
	}
	if k.APIVersion != "" && k.APIVersion != configVersion {
		return nil, fmt.Errorf("it has the apiVersion %.100q: a kubeconfig has %q", k.APIVersion, configVersion)
	}
	for _, u := range k.Users {
		return nil, fmt.Errorf("it holds a user, %.100q: cluster information must not hold credentials", u.Name)
	}
	if err := k.checkNames(); err != nil {
		return nil, err
	}
	c, err := k.cluster()
	if err != nil {
		return nil, err
	}
	return c.info()
}

// indicators of YAML's anchors and aliases. Behind a letter or a digit they are part of what stands there.
var (
	anchor = regexp.MustCompile(`(?:^|[^A-Za-z0-9])&`)
	alias  = regexp.MustCompile(`(?:^|[^A-Za-z0-9])\*`)
)

// mayExpand reports whether content can be a document in which an alias repeats an anchor: a few bytes each, for up to a
// megabyte each when it is parsed. It asks no parser, which might see it otherwise than the one that expands; so it also
// finds signs of both kinds in comments and text, where no program that writes kubeconfigs puts them.
func mayExpand(content []byte) bool { return anchor.Match(content) && alias.Match(content) }

// checkNames refuses names that occur twice: readers differ in which one of the two they take.
func (k *kubeconfig) checkNames() error {
	type entry struct{ kind, name string }
	var entries []entry
	for _, c := range k.Clusters {
		entries = append(entries, entry{"clusters", c.Name})
	}
	for _, c := range k.Contexts {
		entries = append(entries, entry{"contexts", c.Name})
	}
	seen := map[entry]bool{}
	for _, e := range entries {
		if seen[e] {
			return fmt.Errorf("it holds two %s with the name %.100q", e.kind, e.name)
		}
		seen[e] = true
	}
	return nil
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
	info := &ClusterInfo{Server: c.Server, CAData: c.CAData, TLSServerName: c.TLSServerName}
	if err := info.check(); err != nil {
		return nil, err
	}
	return info, nil
}

// Certificates returns the certificate authorities. Text between the certificates is skipped, as in RFC 7468; any other PEM
// block is an error, since cluster information is public and a private key must not be in it.
func (i *ClusterInfo) Certificates() ([]*x509.Certificate, error) {
	var certificates []*x509.Certificate
	for block, rest := pem.Decode(i.CAData); block != nil; block, rest = pem.Decode(rest) {
		// Kubernetes ignores certificates with headers, so they must not count for a pin either.
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			return nil, fmt.Errorf("the certificate authority data holds a PEM block %.50q: it has to be certificates alone", block.Type)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("a certificate authority cannot be parsed: %w", err)
		}
		certificates = append(certificates, c)
	}
	switch blocks := bytes.Count(i.CAData, []byte("-----BEGIN")); {
	case len(i.CAData) > 0 && len(certificates) == 0:
		return nil, errors.New("the certificate authority data holds no PEM certificate")
	case blocks != len(certificates): // pem.Decode takes blocks that are cut for text
		return nil, fmt.Errorf("the certificate authority data holds %d PEM blocks, but %d certificates that can be read", blocks, len(certificates))
	}
	return certificates, nil
}

// roots are whom to trust. Nil: those of the system.
func (i *ClusterInfo) roots() (*x509.CertPool, error) {
	certificates, err := i.Certificates()
	if err != nil || len(certificates) == 0 {
		return nil, err
	}
	return poolOf(certificates), nil
}

func poolOf(certificates []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range certificates {
		pool.AddCert(c)
	}
	return pool
}

// check refuses what ParseClusterInfo would refuse once it is encoded.
func (i *ClusterInfo) check() error {
	if _, err := serverURL(i.Server); err != nil {
		return err
	}
	_, err := i.Certificates()
	return err
}

// Encode returns the kubeconfig in YAML, as kubeadm writes it. It is for everybody's eyes: of CAData the certificates alone
// are in it. What ParseClusterInfo would refuse is an error.
func (i *ClusterInfo) Encode() ([]byte, error) {
	if _, err := serverURL(i.Server); err != nil {
		return nil, err
	}
	certificates, err := i.Certificates()
	if err != nil {
		return nil, err
	}
	var caData []byte
	for _, c := range certificates {
		caData = append(caData, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	return yaml.Marshal(kubeconfig{
		APIVersion: configVersion, Kind: configKind,
		Clusters: []namedCluster{{Cluster: cluster{CAData: caData, Server: i.Server, TLSServerName: i.TLSServerName}}},
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

// JoinCommand returns the kubeadm command that joins the cluster, with a pin for each certificate authority. It is one line,
// safe for a shell, and as secret as the token that it holds. Errors: there is no token, Server cannot be used, Server has a
// path, which kubeadm does not know, or CAData holds no certificate, without which there is no pin.
func (i *ClusterInfo) JoinCommand(t Token) (string, error) {
	if t.IsZero() {
		return "", errors.New("there is no token to join with; use ParseToken")
	}
	u, err := serverURL(i.Server)
	if err != nil {
		return "", err
	}
	if strings.Trim(u.Path, "/") != "" {
		return "", fmt.Errorf("kubeadm joins at <host>:<port>, without a path: the server is %.200q", i.Server)
	}
	pins, err := i.Pins()
	if err != nil {
		return "", err
	}
	if len(pins) == 0 {
		return "", errors.New("there is no certificate authority to pin, and kubeadm joins no cluster without a pin: " +
			"set CAData (certificate-authority-data of the kubeconfig)")
	}
	address := hostPort(u)
	if strings.HasPrefix(address, "[") { // shells take the brackets of IPv6 for a pattern of file names
		address = `"` + address + `"`
	}
	var b strings.Builder
	fmt.Fprintf(&b, "kubeadm join %s --token %s", address, t.Reveal())
	for _, p := range pins {
		b.WriteString(" --discovery-token-ca-cert-hash " + p.String())
	}
	return b.String(), nil
}
