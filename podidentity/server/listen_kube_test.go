package server_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/workloadid/workloadid/internal/podidentity"
	"github.com/workloadid/workloadid/internal/testing/testca"
)

// certificate is a pair of files, as a mounted Secret has them: the folder is a
// link that changes at once.
type certificate struct {
	t    testing.TB
	dir  string
	pool *x509.CertPool
}

func newCertificate(t testing.TB) *certificate {
	t.Helper()
	c := &certificate{t: t, dir: t.TempDir(), pool: x509.NewCertPool()}
	c.write()
	return c
}

func (c *certificate) certFile() string { return filepath.Join(c.dir, "..data", "tls.crt") }
func (c *certificate) keyFile() string  { return filepath.Join(c.dir, "..data", "tls.key") }

// write replaces the pair by one of another CA, and returns its serial number.
// Clients trust all CAs.
func (c *certificate) write() (serial int64) {
	c.t.Helper()
	ca := testca.New(c.t, "server")
	pair := ca.Issue(c.t)
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		c.t.Fatal(err)
	}
	c.pool.AddCert(ca.Certificate)
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})
	folder := filepath.Join(c.dir, pair.Leaf.SerialNumber.String())
	link := filepath.Join(c.dir, "new")
	for _, err := range []error{
		os.Mkdir(folder, 0o700),
		os.WriteFile(filepath.Join(folder, "tls.crt"), cert, 0o600),
		os.WriteFile(filepath.Join(folder, "tls.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
			0o600),
		os.Symlink(folder, link),
		os.Rename(link, filepath.Join(c.dir, "..data")),
	} {
		if err != nil {
			c.t.Fatal(err)
		}
	}
	return pair.Leaf.SerialNumber.Int64()
}

// listening runs one more replica with HTTPS, and returns its address.
func (w *environment) listening(c *certificate) (address string, stop func()) {
	w.T.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // does not wait
	if err != nil {
		w.T.Fatal(err)
	}
	mgr, s := w.replica()
	if err := s.Listen(mgr, listener, c.certFile(), c.keyFile()); err != nil {
		w.T.Fatal(err)
	}
	return listener.Addr().String(), w.start(mgr)
}

// post asks over HTTPS on a new connection, and returns the serial number of
// the certificate too.
func (c *certificate) post(pool *x509.CertPool, address, token string) (status int, serial int64, err error) {
	return c.postFrom(net.IPv4(127, 0, 0, 1), pool, address, token)
}

func (c *certificate) postFrom(from net.IP, pool *x509.CertPool, address,
	token string) (status int, serial int64, err error) {
	transport := &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		DialContext:     (&net.Dialer{LocalAddr: &net.TCPAddr{IP: from}}).DialContext}
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, "https://"+address+podidentity.Path, http.NoBody)
	if err != nil {
		return 0, 0, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := (&http.Client{Transport: transport, Timeout: patience}).Do(r)
	if err != nil {
		return 0, 0, err
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, answer.TLS.PeerCertificates[0].SerialNumber.Int64(), err
}

func TestCertificateRotatesUnderLoad(t *testing.T) {
	w := newEnvironment(t)
	w.bind("app", w.role("app"))
	token := w.workerToken("app")
	c := newCertificate(t)
	address, _ := w.listening(c)
	var newest, requests atomic.Int64
	var ended atomic.Bool
	var load sync.WaitGroup
	var pool sync.RWMutex
	for range 4 {
		load.Go(func() {
			pace := time.NewTicker(100 * time.Millisecond) // together below the rate of a namespace
			defer pace.Stop()
			for ; !ended.Load(); <-pace.C {
				pool.RLock()
				roots := c.pool.Clone()
				pool.RUnlock()
				status, serial, err := c.post(roots, address, token)
				if err != nil || status != http.StatusOK {
					t.Errorf("status %d, %v", status, err)
					return
				}
				newest.Store(max(newest.Load(), serial))
				requests.Add(1)
			}
		})
	}
	pool.Lock()
	second := c.write()
	pool.Unlock()
	w.Eventually("the new certificate is served", func() bool { return newest.Load() == second || t.Failed() })
	ended.Store(true)
	load.Wait()
	t.Logf("%d requests", requests.Load())
}

// Connections are bounded in size and time before a request reaches the
// handler.
func TestConnectionsAreBounded(t *testing.T) {
	w := newEnvironment(t)
	c := newCertificate(t)
	address, _ := w.listening(c)
	for name, test := range map[string]struct {
		sent, want string
		within     time.Duration
	}{
		"a million characters of headers": {"POST /v1/credentials HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " +
			strings.Repeat("a", 1<<20), "HTTP/1.1 431 ", 3 * time.Second},
		"headers that never end": {"POST /v1/credentials HTTP/1.1\r\nHost: x\r\n", "", 10 * time.Second},
		"a body that never ends": {"POST /v1/credentials HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{",
			"HTTP/1.1 400 ", 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: c.pool, MinVersion: tls.VersionTLS12}}).DialContext(
				t.Context(), "tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close() //nolint:errcheck // nothing is lost
			_ = conn.SetDeadline(time.Now().Add(patience))
			_, _ = io.WriteString(conn, test.sent) // the server may close meanwhile
			start := time.Now()
			got := make([]byte, len(test.want))
			_, _ = io.ReadFull(conn, got)
			if len(got) == 0 {
				got, _ = io.ReadAll(conn)
			}
			if string(got) != test.want {
				t.Errorf("got %q", got)
			}
			if took := time.Since(start); took > test.within+patience/2 {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// An address holds as many connections as it can, with headers that it never
// ends. Pods of both addresses get credentials meanwhile.
func TestOneAddressCannotHoldAllConnections(t *testing.T) {
	const most = 32
	w := newEnvironment(t, func(w *environment) { w.connections = most })
	w.bind("app", w.role("app"))
	token := w.workerToken("app")
	c := newCertificate(t)
	address, _ := w.listening(c)
	hold := func() (closed chan struct{}) {
		conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: c.pool, MinVersion: tls.VersionTLS12}}).DialContext(
			t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = io.WriteString(conn,
			"POST /v1/credentials HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+strings.Repeat("a", 8<<10))
		closed = make(chan struct{})
		go func() {
			defer close(closed)
			_, _ = io.Copy(io.Discard, conn)
		}()
		return closed
	}
	var flood []chan struct{}
	for range 3 * most {
		flood = append(flood, hold())
	}
	for _, from := range []string{"127.0.0.2", "127.0.0.1"} {
		t.Run(from, func(t *testing.T) {
			for range most / 2 {
				hold()
				if status, _, err := c.postFrom(net.ParseIP(from), c.pool, address, token); err != nil || status != http.StatusOK {
					t.Fatalf("status %d, %v", status, err)
				}
			}
		})
	}
	for _, closed := range flood[:2*most] {
		<-closed
	}
	w.Eventually("the server counts its connections", func() bool {
		return w.gauge("podidentity_server_connections") <= most
	})
	if evicted := w.gauge("podidentity_server_evicted_connections_total"); evicted < 2*most {
		t.Errorf("%v connections evicted", evicted)
	}
}

// A manager that ends lets requests finish that it has taken.
func TestReplicaThatEndsFinishesRequests(t *testing.T) {
	w := newEnvironment(t)
	w.bind("app", w.role("app"))
	token := w.workerToken("app")
	c := newCertificate(t)
	address, stop := w.listening(c)
	defer w.cloud.AddFault(faultOfLatency(2 * time.Second))()
	before := w.assumed()
	var request sync.WaitGroup
	request.Go(func() {
		if status, _, err := c.post(c.pool, address, token); err != nil || status != http.StatusOK {
			t.Errorf("status %d, %v", status, err)
		}
	})
	w.Eventually("STS is asked", func() bool { return w.assumed() > before })
	stop()
	request.Wait()
}
