package bootstrap

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Load reads a ClusterInfo from where somebody has put it: a file, an https URL, or stdin for "-". A URL is verified with
// the system's certificate authorities, and redirects stay on https. Whatever ParseClusterInfo refuses is refused.
func Load(ctx context.Context, source string, stdin io.Reader) (*ClusterInfo, error) {
	content, err := read(ctx, source, stdin, nil)
	if err != nil {
		return nil, fmt.Errorf("load cluster information from %q: %w", source, err)
	}
	info, err := ParseClusterInfo(content)
	if err != nil {
		return nil, fmt.Errorf("load cluster information from %q: %w", source, err)
	}
	return info, nil
}

func read(ctx context.Context, source string, stdin io.Reader, roots *x509.CertPool) ([]byte, error) {
	scheme, _, isURL := strings.Cut(source, "://")
	switch {
	case source == "-":
		if stdin == nil {
			return nil, errors.New("there is no standard input")
		}
		return bounded(stdin)
	case isURL && scheme != "https":
		return nil, errors.New("only https URLs can be trusted")
	case isURL:
		status, body, err := fetch(ctx, source, &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}, stayOnHTTPS, maxClusterInfo)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("the server answers with HTTP %d", status)
		}
		return body, err
	}
	file, err := os.Open(source) //nolint:gosec // the file that the user names
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	return bounded(file)
}

func bounded(r io.Reader) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(r, maxClusterInfo+1))
	if err == nil && len(content) > maxClusterInfo {
		err = fmt.Errorf("it is larger than %d bytes", maxClusterInfo)
	}
	return content, err
}

// Refresh reads the cluster-info that the cluster publishes now, over a connection that i verifies: server and
// certificate authorities may both have moved. i stays as it is.
func (i *ClusterInfo) Refresh(ctx context.Context) (*ClusterInfo, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: i.TLSServerName}
	if len(i.CAData) > 0 {
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM(i.CAData)
	}
	if _, err := serverURL(i.Server); err != nil {
		return nil, err
	}
	status, body, err := fetch(ctx, strings.TrimSuffix(i.Server, "/")+clusterInfoPath, config, refuseRedirects, maxConfigMap)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("the server answers with HTTP %d", status)
	}
	if err != nil {
		return nil, fmt.Errorf("refresh cluster information from %s: %w", i.Server, err)
	}
	var configMap corev1.ConfigMap
	if err := json.Unmarshal(body, &configMap); err != nil {
		return nil, fmt.Errorf("refresh cluster information from %s: the answer is not a ConfigMap", i.Server)
	}
	info, err := ParseClusterInfo([]byte(configMap.Data[KubeConfigKey]))
	if err != nil {
		return nil, fmt.Errorf("refresh cluster information from %s: %w", i.Server, err)
	}
	return info, nil
}

// Save writes the kubeconfig atomically, readable for its owner only.
func (i *ClusterInfo) Save(path string) error {
	content, err := i.Encode()
	if err != nil {
		return err
	}
	return writeAtomically(path, content)
}
