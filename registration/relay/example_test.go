package relay_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/workloadid/workloadid/registration/relay"
)

func Example() {
	if err := serve(":8443"); err != nil {
		fmt.Println(err)
	}
}

// serve runs a relay. Its files are the kubeconfig of the ServiceAccount
// registration-relay on the hub, the hub's client CA, and a serving certificate
// that agents trust.
func serve(address string) error {
	hub, err := clientcmd.BuildConfigFromFlags("", "hub.kubeconfig")
	if err != nil {
		return err
	}
	authorities, err := os.ReadFile("client-ca.crt")
	if err != nil {
		return err
	}
	clientCAs := x509.NewCertPool()
	if !clientCAs.AppendCertsFromPEM(authorities) {
		return errors.New("client-ca.crt holds no certificate")
	}
	handler, err := relay.New(relay.Options{Hub: hub, ClientCAs: clientCAs})
	if err != nil {
		return err
	}
	config := relay.TLSConfig(clientCAs)
	// read again: it is renewed while the relay runs
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		certificate, err := tls.LoadX509KeyPair("tls.crt", "tls.key")
		return &certificate, err
	}
	listener, err := net.Listen("tcp", address) //nolint:noctx // there is no context to listen with
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, TLSConfig: config, // no WriteTimeout: it would end watches
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 100, WriteByteTimeout: 30 * time.Second}}
	return server.ServeTLS(relay.LimitListener(listener, 2000, 1500), "", "")
}
