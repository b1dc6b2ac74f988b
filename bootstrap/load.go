package bootstrap

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
)

// Load reads a [ClusterInfo] from a regular file, an https URL, or stdin for
// "-". It refuses what [ParseClusterInfo] refuses, and URLs with a user name or
// a password. It verifies a URL with the system's CAs, follows redirects to
// https only, and takes at most 10 seconds. Errors name a URL without its
// query, which may be a secret.
//
// Load returns when the context expires. A pending Read of stdin cannot be
// interrupted and continues until stdin is closed.
func Load(ctx context.Context, source string, stdin io.Reader) (*ClusterInfo, error) {
	content, err := read(ctx, source, stdin)
	if err != nil {
		return nil, fmt.Errorf("load cluster information from %.300q: %w", public(source), err)
	}
	info, err := ParseClusterInfo(content)
	if err != nil {
		return nil, fmt.Errorf("load cluster information from %.300q: %w", public(source), err)
	}
	return info, nil
}

// public returns the part of a source that errors may repeat.
func public(source string) string {
	scheme, _, isURL := strings.Cut(source, "://")
	if !isURL {
		return source
	}
	u, err := url.Parse(source)
	if err != nil {
		return scheme + "://"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

func read(ctx context.Context, source string, stdin io.Reader) ([]byte, error) {
	scheme, _, isURL := strings.Cut(source, "://")
	switch {
	case source == "-" && stdin == nil:
		return nil, errors.New("there is no standard input")
	case source == "-":
		return readStream(ctx, stdin)
	case isURL && scheme != "https":
		return nil, errors.New("only https URLs can be trusted")
	case isURL:
		return download(ctx, source)
	}
	return readFile(source, anyOwner)
}

func download(ctx context.Context, address string) ([]byte, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, errors.New("it is not a URL")
	case u.User != nil:
		return nil,
			errors.New("the URL must not hold a user name or a password: download it, and pipe it into standard input")
	}
	status, body, err := fetch(ctx, address, &tls.Config{MinVersion: tls.VersionTLS12}, stayOnHTTPS, maxClusterInfo)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("the server answers with HTTP %d", status)
	}
	return body, err
}

// readStream returns when the context expires. It abandons a pending Read,
// which cannot be interrupted.
func readStream(ctx context.Context, r io.Reader) ([]byte, error) {
	type result struct {
		content []byte
		err     error
	}
	done := make(chan result, 1)
	go func() {
		content, err := bounded(r)
		done <- result{content, err}
	}()
	select {
	case got := <-done:
		return got.content, got.err
	case <-ctx.Done():
		return nil, fmt.Errorf("standard input did not end: %w", ctx.Err())
	}
}

func bounded(r io.Reader) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(r, maxClusterInfo+1))
	if err == nil && len(content) > maxClusterInfo {
		err = fmt.Errorf("it is larger than %d bytes", maxClusterInfo)
	}
	return content, err
}

// Refresh reads the current cluster-info over a connection that i verifies, and
// leaves i unchanged. Server and CAs may both have moved. The answer needs no
// signature, so write access to the ConfigMap kube-public/cluster-info decides
// where the cluster is.
func (i *ClusterInfo) Refresh(ctx context.Context) (*ClusterInfo, error) {
	if _, err := serverURL(i.Server); err != nil {
		return nil, err
	}
	roots, err := i.roots()
	if err != nil {
		return nil, fmt.Errorf("refresh cluster information from %s: %w", i.Server, err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: i.TLSServerName}
	status, body, err := fetch(ctx, strings.TrimSuffix(i.Server, "/")+clusterInfoPath, config, refuseRedirects,
		maxConfigMap)
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
	info, err := ParseClusterInfo([]byte(configMap.Data[bootstrapapi.KubeConfigKey]))
	if err != nil {
		return nil, fmt.Errorf("refresh cluster information from %s: %w", i.Server, err)
	}
	return info, nil
}

// Save writes the kubeconfig atomically, with mode 0600. The directory must
// exist.
func (i *ClusterInfo) Save(path string) error {
	content, err := i.Encode()
	if err == nil {
		err = writeAtomically(path, content)
	}
	if err != nil {
		return fmt.Errorf("save cluster information as %.300q: %w", path, err)
	}
	return nil
}
