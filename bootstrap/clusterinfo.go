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

	"github.com/workloadid/workloadid/internal/redact"
)

// ClusterInfo holds the address of a cluster and the CAs to trust there.
// Encoded, it is a kubeconfig with one unnamed cluster.
type ClusterInfo struct {
	// Server is the URL of the API server, https://<host>[:<port>][/<path>].
	// The host is a DNS name or an IP address, the default port is 443.
	Server string
	// CAData holds the certificates of the CAs to trust, in PEM, and no secret.
	// Empty: the system's CAs.
	CAData []byte
	// TLSServerName is the expected name in the server's certificate. Empty:
	// the host of Server.
	TLSServerName string
}

// maxClusterInfo bounds a kubeconfig, in bytes. No API object is larger.
const maxClusterInfo = 1 << 20

const (
	configVersion = "v1"
	configKind    = "Config"
)

// kubeconfig is the relevant part of client.config/v1. Fields that could steal
// credentials or run a program are refused. All other fields are ignored.
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

// ParseClusterInfo parses a kubeconfig in YAML or JSON, at most 1 MiB. It
// returns the unnamed cluster, or else the cluster of the current context.
//
// It refuses credentials and private keys, commands, local paths, proxies, the
// insecure flag, servers without https, and YAML anchors with aliases. Like
// kubectl, it refuses two clusters or contexts of one name, and a kind or
// apiVersion other than Config and v1. Both may be absent.
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

// The indicators of YAML anchors and aliases. After a letter or a digit they
// belong to the text.
var (
	anchor = regexp.MustCompile(`(?:^|[^A-Za-z0-9])&`)
	alias  = regexp.MustCompile(`(?:^|[^A-Za-z0-9])\*`)
)

// mayExpand reports whether an alias may repeat an anchor, which can expand a
// few bytes to megabytes. It uses no parser, because two parsers may disagree.
// So it also matches comments and text. No program writes both there.
func mayExpand(content []byte) bool { return anchor.Match(content) && alias.Match(content) }

// checkNames refuses duplicate names, because readers disagree about which one
// counts.
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
	if len(k.Clusters) == 0 {
		return cluster{}, errors.New("it holds no cluster")
	}
	if c := k.named(""); c != nil {
		return *c, nil
	}
	if k.CurrentContext == "" {
		return cluster{}, fmt.Errorf("it holds no unnamed cluster and no current-context: "+
			"set current-context to a context of the cluster %.100q", k.Clusters[0].Name)
	}
	for _, context := range k.Contexts {
		if context.Name != k.CurrentContext {
			continue
		}
		if c := k.named(context.Context.Cluster); c != nil {
			return *c, nil
		}
		return cluster{}, fmt.Errorf("its context %.100q names the cluster %.100q, which it does not hold: "+
			"name one that it holds, such as %.100q", context.Name, context.Context.Cluster, k.Clusters[0].Name)
	}
	const missing = "its current-context %.100q is not among its contexts: "
	if len(k.Contexts) == 0 {
		return cluster{}, fmt.Errorf(missing+"add it", k.CurrentContext)
	}
	return cluster{}, fmt.Errorf(missing+"set it to one that is, such as %.100q", k.CurrentContext, k.Contexts[0].Name)
}

// named returns nil for an unknown cluster.
func (k *kubeconfig) named(name string) *cluster {
	for i := range k.Clusters {
		if k.Clusters[i].Name == name {
			return &k.Clusters[i].Cluster
		}
	}
	return nil
}

func (c cluster) info() (*ClusterInfo, error) {
	switch {
	case c.Insecure:
		return nil, errors.New("it switches the verification of certificates off: " +
			"replace insecure-skip-tls-verify with certificate-authority-data")
	case c.CAFile != "":
		return nil, fmt.Errorf("it names a local file, %.100q, instead of certificate-authority-data", c.CAFile)
	case c.ProxyURL != "":
		return nil,
			fmt.Errorf(
				"it sets the proxy %.200q: remove proxy-url, and set HTTPS_PROXY in the environment if the cluster is behind it",
				redact.URL(c.ProxyURL))
	}
	info := &ClusterInfo{Server: c.Server, CAData: c.CAData, TLSServerName: c.TLSServerName}
	if err := info.check(); err != nil {
		return nil, err
	}
	return info, nil
}

// Certificates returns the CAs. It skips text between the certificates, as in
// RFC 7468. Any other PEM block is an error, because cluster information is
// public and must not hold a private key.
func (i *ClusterInfo) Certificates() ([]*x509.Certificate, error) {
	var certificates []*x509.Certificate
	for block, rest := pem.Decode(i.CAData); block != nil; block, rest = pem.Decode(rest) {
		// Kubernetes ignores certificates with headers, so they must not count
		// for a pin either.
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			return nil, fmt.Errorf("the certificate authority data holds a PEM block %.50q: it has to be certificates alone",
				block.Type)
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
	case blocks != len(certificates): // pem.Decode treats truncated blocks as text
		return nil, fmt.Errorf("the certificate authority data holds %d PEM blocks, but %d certificates that can be read",
			blocks, len(certificates))
	}
	return certificates, nil
}

// roots returns the CAs to trust. Nil: the system's.
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

// check refuses a value that ParseClusterInfo would refuse after Encode.
func (i *ClusterInfo) check() error {
	if _, err := serverURL(i.Server); err != nil {
		return err
	}
	_, err := i.Certificates()
	return err
}

// Encode returns the kubeconfig in YAML, as kubeadm writes it. The result is
// public: it contains only the certificates of CAData. Encode refuses what
// [ParseClusterInfo] refuses.
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

// Pins returns the pins of all CAs.
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

// JoinCommand returns the kubeadm command that joins the cluster, with a pin
// for each CA. It is one line, safe for a shell, and contains the token. It
// fails without a token, without a certificate, and if Server is invalid or has
// a path.
func (i *ClusterInfo) JoinCommand(t Token) (string, error) {
	if t.IsZero() {
		return "", errors.New("there is no token to join with")
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
			"set certificate-authority-data of the kubeconfig")
	}
	address := hostPort(u)
	if strings.HasPrefix(address, "[") { // shells treat the brackets of IPv6 as a pattern
		address = `"` + address + `"`
	}
	var b strings.Builder
	fmt.Fprintf(&b, "kubeadm join %s --token %s", address, t.Reveal())
	for _, p := range pins {
		b.WriteString(" --discovery-token-ca-cert-hash " + p.String())
	}
	return b.String(), nil
}
