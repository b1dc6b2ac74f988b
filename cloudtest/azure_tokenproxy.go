package cloudtest

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	tokenProxyAudience   = "api://AKSIdentityBinding"
	tokenProxyServerName = "ests.aks.example"
	tokenProxyPath       = "/token-proxy" // clients have to keep the path
)

// AKSTokenProxy imitates the token proxy of an AKS cluster with identity
// bindings: Microsoft Entra ID for ServiceAccount tokens of one issuer with the
// audience api://AKSIdentityBinding. [AKSTokenProxy.SetRight] replaces
// federated credentials. In Calls and [Fault] its service is "aks-token-proxy".
// It stops with its [Cloud], and it is safe for concurrent use.
//
// It does not imitate bindings. The real answer to a missing right is
// undocumented; the fake answers 403 without AADSTS.
type AKSTokenProxy struct {
	azure    *Azure
	issuer   string
	listener net.Listener

	mu        sync.Mutex
	authority *authority
	rights    map[string][]string // subjects by lower-case client ID
}

// NewTokenProxy starts the token proxy of a cluster, for tokens of its issuer.
// fetch gets the issuer's documents.
func (a *Azure) NewTokenProxy(issuer string, fetch *http.Client) (*AKSTokenProxy, error) {
	p := &AKSTokenProxy{azure: a, issuer: issuer, rights: map[string][]string{}}
	err := p.RotateCA()
	if err == nil {
		p.listener, err = net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // does not wait
	}
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	a.issuers[issuer] = &oidcProvider{issuer: issuer, fetch: fetch}
	a.mu.Unlock()
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second,
		Handler: http.StripPrefix(tokenProxyPath, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a.serveEntraBehind(p, w, r, withoutPort(r.Host))
		})),
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: p.certificate},
	}
	a.cloud.served.Go(func() { _ = server.ServeTLS(p.listener, "", "") }) // ends with ErrServerClosed
	a.cloud.served.Go(func() {
		<-a.cloud.closing
		_ = server.Close() // nothing is lost
	})
	return p, nil
}

// Env returns the environment variables that AKS sets in pods, with
// AZURE_KUBERNETES_CA_DATA in place of a file.
func (p *AKSTokenProxy) Env() map[string]string {
	return map[string]string{
		"AZURE_KUBERNETES_TOKEN_PROXY": "https://" + p.listener.Addr().String() + tokenProxyPath,
		"AZURE_KUBERNETES_SNI_NAME":    tokenProxyServerName,
		"AZURE_KUBERNETES_CA_DATA":     string(p.CA()),
	}
}

// CA returns the proxy's CA in PEM. The [Cloud] has another one.
func (p *AKSTokenProxy) CA() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.authority.pem
}

// RotateCA replaces the CA for new connections.
func (p *AKSTokenProxy) RotateCA() error {
	ca, err := newAuthority()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.authority = ca
	return err
}

// SetRight replaces the subjects that may use a managed identity. It creates
// the identity and its tenant if needed.
func (p *AKSTokenProxy) SetRight(tenant, clientID string, subjects ...string) {
	p.azure.mu.Lock()
	p.azure.app(tenant, clientID)
	p.azure.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rights[strings.ToLower(clientID)] = slices.Clone(subjects)
}

// authorize checks the claims of a token. Another function verifies the
// signature.
func (p *AKSTokenProxy) authorize(claims tokenClaims, clientID string) *entraRefusal {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case claims.Issuer != p.issuer || !slices.Contains(claims.Audience, tokenProxyAudience):
		return refuseEntra(http.StatusUnauthorized, "invalid_client", 0,
			"The token of issuer '%s' is not one of this cluster for %s.", claims.Issuer, tokenProxyAudience)
	case !slices.Contains(p.rights[strings.ToLower(clientID)], claims.Subject):
		return refuseEntra(http.StatusForbidden, "unauthorized_client", 0,
			"User '%s' cannot use-managed-identity '%s'.", claims.Subject, clientID)
	}
	return nil
}

func (p *AKSTokenProxy) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if hello.ServerName != tokenProxyServerName {
		return nil, fmt.Errorf("cloudtest: the token proxy is not %q", hello.ServerName)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.authority.certificateFor(hello)
}
