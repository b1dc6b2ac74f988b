package authtest

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// proxy lets programs reach the cloud that know nothing of Cloud.Client: it connects them as a web proxy does.
type proxy struct {
	once sync.Once
	url  *url.URL
	err  error
}

// ProxyURL returns the address of a proxy that reaches the cloud at the host names of the real services and nothing else,
// for tests of whole programs. ProxyEnv makes an environment of it. The proxy starts with the first call and ends with the
// cloud. It speaks CONNECT only: what services are sent is encrypted, and metadata services are not asked through proxies.
func (c *Cloud) ProxyURL() (*url.URL, error) {
	c.proxy.once.Do(func() { c.proxy.url, c.proxy.err = c.startProxy() })
	return c.proxy.url, c.proxy.err
}

// ProxyEnv returns the environment variables with which programs reach the cloud and trust it: those written in Go, the
// AWS SDKs, curl, git and many others. dir is where the certificate authority is written to, a file of the name cloud-ca.pem.
func (c *Cloud) ProxyEnv(dir string) ([]string, error) {
	u, err := c.ProxyURL()
	if err != nil {
		return nil, err
	}
	ca := filepath.Join(dir, "cloud-ca.pem")
	if err := os.WriteFile(ca, c.CA(), 0o600); err != nil {
		return nil, err
	}
	return []string{
		"HTTPS_PROXY=" + u.String(), "https_proxy=" + u.String(), "NO_PROXY=", "no_proxy=",
		"SSL_CERT_FILE=" + ca, "SSL_CERT_DIR=/nonexistent", "AWS_CA_BUNDLE=" + ca, "CURL_CA_BUNDLE=" + ca, "GIT_SSL_CAINFO=" + ca,
	}, nil
}

func (c *Cloud) startProxy() (*url.URL, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // does not wait
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: http.HandlerFunc(c.connect), ReadHeaderTimeout: 10 * time.Second}
	c.served.Go(func() { _ = server.Serve(listener) }) // ends with ErrServerClosed
	c.served.Go(func() {
		<-c.closing
		_ = server.Close() // there is nobody to tell
	})
	return &url.URL{Scheme: "http", Host: listener.Addr().String()}, nil
}

// connect is CONNECT of RFC 9110, section 9.3.6.
func (c *Cloud) connect(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		http.Error(w, "authtest: this proxy connects to https addresses only", http.StatusMethodNotAllowed)
		return
	}
	upstream, err := c.DialContext(r.Context(), "tcp", r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer upstream.Close() //nolint:errcheck // there is nobody to tell
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close() //nolint:errcheck // there is nobody to tell
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	c.splice(conn, buffered.Reader, upstream)
}

// splice passes on in both directions until one of them ends, or the cloud.
func (c *Cloud) splice(conn net.Conn, fromClient *bufio.Reader, upstream net.Conn) {
	ended := make(chan struct{}, 2)
	var copies sync.WaitGroup
	copies.Go(func() { _, _ = io.Copy(upstream, fromClient); ended <- struct{}{} })
	copies.Go(func() { _, _ = io.Copy(conn, upstream); ended <- struct{}{} })
	select {
	case <-ended:
	case <-c.closing:
	}
	_, _ = conn.Close(), upstream.Close()
	copies.Wait()
}
