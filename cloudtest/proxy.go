package cloudtest

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

// proxy connects programs without Cloud.Client to the cloud, as a web proxy
// does.
type proxy struct {
	once sync.Once
	url  *url.URL
	err  error
}

// ProxyEnv returns environment variables for programs in a process of their
// own. With them, programs written in Go, the AWS SDKs, curl, git and many
// others reach the cloud at the host names of the real services, and nothing
// else. ProxyEnv writes the CA to the file cloud-ca.pem in dir.
//
// The variables name a proxy that starts with the first call and stops with the
// cloud. It answers CONNECT only: requests to services are encrypted, and
// programs reach metadata services without a proxy.
func (c *Cloud) ProxyEnv(dir string) ([]string, error) {
	c.proxy.once.Do(func() { c.proxy.url, c.proxy.err = c.startProxy() })
	if c.proxy.err != nil {
		return nil, c.proxy.err
	}
	ca, address := filepath.Join(dir, "cloud-ca.pem"), c.proxy.url.String()
	if err := os.WriteFile(ca, c.CA(), 0o600); err != nil {
		return nil, err
	}
	return []string{
		"HTTPS_PROXY=" + address, "https_proxy=" + address, "NO_PROXY=", "no_proxy=",
		"SSL_CERT_FILE=" + ca, "SSL_CERT_DIR=/nonexistent", "AWS_CA_BUNDLE=" + ca, "CURL_CA_BUNDLE=" + ca,
		"GIT_SSL_CAINFO=" + ca,
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
		_ = server.Close() // nothing is lost
	})
	return &url.URL{Scheme: "http", Host: listener.Addr().String()}, nil
}

// connect answers CONNECT (RFC 9110, section 9.3.6).
func (c *Cloud) connect(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		http.Error(w, "cloudtest: this proxy connects to https addresses only", http.StatusMethodNotAllowed)
		return
	}
	upstream, err := c.DialContext(r.Context(), "tcp", r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer upstream.Close() //nolint:errcheck // nothing is lost
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close() //nolint:errcheck // nothing is lost
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	c.splice(conn, buffered.Reader, upstream)
}

// splice copies in both directions until one of them ends or the cloud closes.
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
