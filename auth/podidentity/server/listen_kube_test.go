package server_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/workloadid/workloadid/auth/podidentity/server"
	"github.com/workloadid/workloadid/internal/podidentity"
)

// certificate is a pair of files, as a mounted Secret has them: the folder is a link that changes at once.
type certificate struct {
	t    testing.TB
	dir  string
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newCertificate(t testing.TB) *certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &certificate{t: t, dir: t.TempDir(), key: key, pool: x509.NewCertPool()}
	c.write(1)
	return c
}

func (c *certificate) certFile() string { return filepath.Join(c.dir, "..data", "tls.crt") }
func (c *certificate) keyFile() string  { return filepath.Join(c.dir, "..data", "tls.key") }

// write replaces the pair by one with a serial number. Clients trust all of them.
func (c *certificate) write(serial int64) {
	c.t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "server"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, c.key.Public(), c.key)
	if err != nil {
		c.t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(c.key)
	if err != nil {
		c.t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	c.pool.AppendCertsFromPEM(cert)
	folder := filepath.Join(c.dir, fmt.Sprint(serial))
	link := filepath.Join(c.dir, "new")
	for _, err := range []error{
		os.Mkdir(folder, 0o700),
		os.WriteFile(filepath.Join(folder, "tls.crt"), cert, 0o600),
		os.WriteFile(filepath.Join(folder, "tls.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600),
		os.Symlink(folder, link),
		os.Rename(link, filepath.Join(c.dir, "..data")),
	} {
		if err != nil {
			c.t.Fatal(err)
		}
	}
}

// listening runs one more replica with HTTPS, and returns its address.
func (w *environment) listening(c *certificate) (address string, stop func()) {
	w.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // does not wait
	if err != nil {
		w.t.Fatal(err)
	}
	mgr, s := w.replica()
	if err := s.Listen(mgr, listener, c.certFile(), c.keyFile()); err != nil {
		w.t.Fatal(err)
	}
	return listener.Addr().String(), w.start(mgr)
}

// post asks over HTTPS on a new connection, and returns the serial number of the certificate too.
func (c *certificate) post(pool *x509.CertPool, address, token string) (status int, serial int64, err error) {
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
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
	c.write(2)
	pool.Unlock()
	w.eventually("the new certificate is served", func() bool { return newest.Load() == 2 || t.Failed() })
	ended.Store(true)
	load.Wait()
	t.Logf("%d requests", requests.Load())
}

// A replica whose process ends cuts its connections. Each replica serves every pod, so that a client that tries the next one notices nothing.
func TestReplicaDiesUnderLoad(t *testing.T) {
	w := newEnvironment(t)
	w.bind("app", w.role("app"))
	token := w.workerToken("app")
	mgr, second := w.replica()
	w.start(mgr)
	var replicas []*httptest.Server
	for _, handler := range []http.Handler{w.server, second} {
		replica := httptest.NewServer(handler)
		t.Cleanup(replica.Close)
		replicas = append(replicas, replica)
	}
	ask := func(first int) error {
		var err error
		for n := range replicas {
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, replicas[(first+n)%len(replicas)].URL+podidentity.Path, http.NoBody)
			r.Header.Set("Authorization", "Bearer "+token)
			answer, doErr := http.DefaultClient.Do(r)
			if err = doErr; err == nil {
				_ = answer.Body.Close()
				if answer.StatusCode == http.StatusOK {
					return nil
				}
				err = fmt.Errorf("status %d", answer.StatusCode)
			}
		}
		return err
	}
	var done atomic.Int64
	var ended atomic.Bool
	var load sync.WaitGroup
	for i := range 8 {
		load.Go(func() {
			for n := i; !ended.Load(); n++ {
				if err := ask(n); err != nil {
					t.Error(err)
					return
				}
				done.Add(1)
			}
		})
	}
	const before, after = 200, 200
	w.eventually("there is load", func() bool { return done.Load() > before || t.Failed() })
	_ = replicas[0].Listener.Close()
	replicas[0].CloseClientConnections()
	at := done.Load()
	w.eventually("the other replica has the load", func() bool { return done.Load() > at+after || t.Failed() })
	ended.Store(true)
	load.Wait()
}

// Connections are bounded in size and time before a request reaches the handler.
func TestConnectionsAreBounded(t *testing.T) {
	w := newEnvironment(t)
	c := newCertificate(t)
	address, _ := w.listening(c)
	for name, test := range map[string]struct {
		sent, want string
		within     time.Duration
	}{
		"a million characters of headers": {"POST /v1/credentials HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + strings.Repeat("a", 1<<20), "HTTP/1.1 431 ", 3 * time.Second},
		"headers that never end":          {"POST /v1/credentials HTTP/1.1\r\nHost: x\r\n", "", 10 * time.Second},
		"a body that never ends":          {"POST /v1/credentials HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{", "HTTP/1.1 400 ", 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: c.pool, MinVersion: tls.VersionTLS12}}).DialContext(t.Context(), "tcp", address)
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
			if took := time.Since(start); took > test.within {
				t.Errorf("it took %s", took)
			}
		})
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
	w.eventually("STS is asked", func() bool { return w.assumed() > before })
	stop()
	request.Wait()
}

func BenchmarkServer(b *testing.B) {
	w := newEnvironment(b)
	w.bind("app", w.role("app"))
	token := w.workerToken("app")
	w.identity(w.ask(token))
	const perServer = 400 // a server limits the rate of a namespace
	servers := make([]*server.Server, b.N/perServer+1)
	for i := range servers {
		options := w.options
		options.Registerer = nil
		servers[i], _ = server.New(options)
	}
	var asked atomic.Int64
	b.SetParallelism(8) // clients for each processor
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, podidentity.Path, http.NoBody)
			r.Header.Set("Authorization", "Bearer "+token)
			if a := send(b, servers[(asked.Add(1)-1)/perServer], r); a.status != http.StatusOK {
				b.Error(a)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}
