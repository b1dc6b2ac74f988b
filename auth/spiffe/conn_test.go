package spiffe_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"math/big"
	"net"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/auth/spiffe"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// x509Source is an X.509-SVID with the bundle of its trust domain.
type x509Source struct {
	*x509svid.SVID
	*x509bundle.Bundle
}

// authority is the CA of the trust domain.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{key: newKey(t)}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Minute),
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		URIs: []*url.URL{trustDomain.ID().URL()}}
	a.cert = create(t, template, template, a.key, a.key)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func create(t *testing.T, template, parent *x509.Certificate, of, by *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &of.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func (a *authority) issue(t *testing.T, id spiffeid.ID) x509Source {
	t.Helper()
	key := newKey(t)
	cert := create(t, &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Minute),
		NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature, URIs: []*url.URL{id.URL()},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}, a.cert, key, a.key)
	return x509Source{&x509svid.SVID{ID: id, Certificates: []*x509.Certificate{cert}, PrivateKey: key},
		x509bundle.FromX509Authorities(trustDomain, []*x509.Certificate{a.cert})}
}

var agentID = spiffeid.RequireFromPath(trustDomain, "/spire/agent/node-1")

// serve serves the agent's Broker API with mutual TLS, to the controller alone.
func (w *environment) serve(t *testing.T, listener net.Listener, own x509Source) {
	t.Helper()
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(tlsconfig.MTLSServerConfig(own, own,
		tlsconfig.AuthorizeID(controllerID)))))
	w.agent.RegisterAt(server)
	done := make(chan error)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func listen(t *testing.T, network, address string) net.Listener {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// Both sides show their X.509-SVID, at a socket or a port. Another agent,
// controller or trust domain is refused.
func TestMutualTLS(t *testing.T) {
	ca := newAuthority(t)
	prefix := spiffeid.RequireFromPath(trustDomain, "/spire/agent")
	for name, tc := range map[string]struct {
		own     x509Source
		agent   tlsconfig.Authorizer
		network string
		reason  provider.Reason // none: accepted
	}{
		"socket":        {ca.issue(t, controllerID), tlsconfig.AuthorizeID(agentID), "unix", ""},
		"port":          {ca.issue(t, controllerID), tlsconfig.AuthorizeIDPrefix(prefix), "tcp", ""},
		"another agent": {ca.issue(t, controllerID), tlsconfig.AuthorizeID(controllerID), "unix", auth.ErrUnavailable},
		"another controller": {ca.issue(t, idOf("tenant-a", "app")), tlsconfig.AuthorizeID(agentID), "unix",
			auth.ErrUnavailable},
		"another authority": {newAuthority(t).issue(t, controllerID), tlsconfig.AuthorizeID(agentID), "unix",
			auth.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			address := "unix://" + filepath.Join(t.TempDir(), "s")
			if tc.network == "tcp" {
				listener := listen(t, "tcp", "127.0.0.1:0")
				address = "tcp://" + listener.Addr().String()
				w.serve(t, listener, ca.issue(t, agentID))
			} else {
				w.serve(t, listen(t, "unix", address[len("unix://"):]), ca.issue(t, agentID))
			}
			t.Setenv(spiffe.BrokerSocketEnv, address)
			conn, err := spiffe.NewBrokerConn("", tc.own, tc.agent)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			_, err = w.get(t.Context(), "tenant-a", "app", auth.WithSubjectIssuer(newSource(t, conn, spiffe.Config{})))
			if tc.reason == "" && err != nil {
				t.Error(err)
			} else if tc.reason != "" {
				testenv.CheckError(t, err, tc.reason, "the SPIFFE agent", "is ready")
			}
		})
	}
}

func TestAddressIsChecked(t *testing.T) {
	own := newAuthority(t).issue(t, controllerID)
	anyAgent := tlsconfig.AuthorizeAny()
	for name, tc := range map[string]struct {
		address string
		own     spiffe.X509Source
		agent   tlsconfig.Authorizer
		want    string
	}{
		"no address":        {"", own, anyAgent, spiffe.BrokerSocketEnv},
		"no SVID":           {"unix:///s", nil, anyAgent, "X.509-SVID"},
		"no authorizer":     {"unix:///s", own, nil, "SPIFFE ID"},
		"no scheme":         {"/run/broker.sock", own, anyAgent, `"/run/broker.sock"`},
		"another scheme":    {"https://agent.example", own, anyAgent, "unix:///<path>"},
		"a host name":       {"tcp://agent.example:1", own, anyAgent, "IP address"},
		"no port":           {"tcp://127.0.0.1", own, anyAgent, "port"},
		"a path at a port":  {"tcp://127.0.0.1:1/x", own, anyAgent, "refused"},
		"a host and a path": {"unix://host/s", own, anyAgent, "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(spiffe.BrokerSocketEnv, "")
			conn, err := spiffe.NewBrokerConn(tc.address, tc.own, tc.agent)
			testenv.CheckError(t, err, auth.ErrMisconfigured, tc.want)
			if conn != nil {
				t.Error("got a connection")
			}
		})
	}
}
