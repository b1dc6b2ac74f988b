package regtest

import (
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net/http/httptest"
	"os"

	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/registration/relay"
)

// Relay starts a relay with a credential of the hub, and returns its address and CA as a client knows them.
func (w *World) Relay(config *rest.Config) *rest.Config {
	w.T.Helper()
	authorities, err := os.ReadFile(w.Hub.ClientCA())
	if err != nil {
		w.T.Fatal(err)
	}
	clientCAs := x509.NewCertPool()
	clientCAs.AppendCertsFromPEM(authorities)
	handler, err := relay.New(relay.Options{Hub: config, ClientCAs: clientCAs, ErrorLog: log.New(w.T.Output(), "", 0)})
	if err != nil {
		w.T.Fatal(err)
	}
	server := httptest.NewUnstartedServer(handler)
	server.TLS, server.EnableHTTP2 = relay.TLSConfig(clientCAs), true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	w.T.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}
